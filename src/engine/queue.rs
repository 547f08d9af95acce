//! A queue that grows by a chunk at a time: no step copies what is there, and none is long.

use std::collections::VecDeque;

/// First in, first out.
pub(crate) struct Queue<T: Item> {
    /// None is empty. Items go to the last, which takes up to [`CHUNK`], and come from the first.
    chunks: VecDeque<Chunk<T>>,
}

struct Chunk<T: Item> {
    /// What the items are packed against: the first that was put in.
    base: T,
    items: VecDeque<T::Packed>,
}

/// What a queue may hold, and how it lies in a chunk.
pub(crate) trait Item: Copy {
    /// It in fewer bytes, beside its chunk's base.
    type Packed: Copy;
    /// `None` where it is too far from the base.
    fn pack(self, base: Self) -> Option<Self::Packed>;
    /// The item again.
    fn unpack(packed: Self::Packed, base: Self) -> Self;
}

/// A time and a row, both of which mostly rise: 24 bits of milliseconds are four hours, and no chunk of
/// bodies that lie close together spans 65,536 rows.
impl Item for (u64, u64) {
    type Packed = [u8; 5];

    fn pack(self, base: Self) -> Option<[u8; 5]> {
        let time = self.0.checked_sub(base.0).filter(|time| *time < 1 << 24)?;
        let row = u16::try_from(self.1.checked_sub(base.1)?).ok()?;
        let ([a, b, c, ..], [d, e]) = (time.to_le_bytes(), row.to_le_bytes());
        Some([a, b, c, d, e])
    }

    fn unpack([a, b, c, d, e]: [u8; 5], base: Self) -> Self {
        (base.0 + u64::from(u32::from_le_bytes([a, b, c, 0])), base.1 + u64::from(u16::from_le_bytes([d, e])))
    }
}

/// No chunk has more items.
const CHUNK: usize = 4096;

impl<T: Item> Default for Queue<T> {
    fn default() -> Self {
        Queue { chunks: VecDeque::new() }
    }
}

impl<T: Item> Queue<T> {
    /// Puts an item at the end.
    pub fn push(&mut self, item: T) {
        if let Some(Chunk { base, items }) = self.chunks.back_mut()
            && items.len() < CHUNK
            && let Some(packed) = item.pack(*base)
        {
            return items.push_back(packed);
        }
        // An item is as close to itself as can be.
        let items = item.pack(item).into_iter().collect();
        self.chunks.push_back(Chunk { base: item, items });
    }

    /// The oldest item.
    pub fn front(&self) -> Option<T> {
        let Chunk { base, items } = self.chunks.front()?;
        Some(T::unpack(*items.front()?, *base))
    }

    /// Takes the oldest item out.
    pub fn pop(&mut self) -> Option<T> {
        let Chunk { base, items } = self.chunks.front_mut()?;
        let item = T::unpack(items.pop_front()?, *base);
        if items.is_empty() {
            self.chunks.pop_front();
        }
        Some(item)
    }

    /// All items, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.chunks.iter().flat_map(|Chunk { base, items }| items.iter().map(|packed| T::unpack(*packed, *base)))
    }
}

impl<T: Item> FromIterator<T> for Queue<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut queue = Queue::default();
        items.into_iter().for_each(|item| queue.push(item));
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_the_order_in_which_they_went_in() {
        let (mut queue, mut model) = (Queue::default(), VecDeque::new());
        let mut random = 7_u64;
        for step in 0..200_000_u64 {
            // Fills for a while, then empties, so that it is empty and has many chunks by turns.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let fills = (step / 30_000) % 2 == 0;
            if (random >> 60 < 12) == fills {
                // Now and then far away from what was there, and back in time.
                let far = if random >> 40 & 1023 == 0 { random >> (random & 31) } else { 0 };
                let item = (step.wrapping_add(far), step);
                queue.push(item);
                model.push_back(item);
            } else {
                assert_eq!(queue.pop(), model.pop_front());
            }
            assert_eq!(queue.front(), model.front().copied());
        }
        assert!(queue.iter().eq(model.iter().copied()));
        assert!(queue.iter().collect::<Queue<_>>().iter().eq(model));
    }

    #[test]
    fn a_row_takes_five_bytes_for_as_long_as_it_is_close() {
        let mut queue = Queue::default();
        let (time, row) = ((1 << 24) - 1, u64::from(u16::MAX));
        let close = [(5, 5), (5 + time, 5), (5, 5 + row)];
        let far = [(6 + time, 5), (6 + time, 6 + row), (0, u64::MAX), (u64::MAX, 0), (5 + (1 << 32), 1)];
        close.into_iter().chain(far).for_each(|item| queue.push(item));
        assert_eq!(queue.chunks.iter().map(|chunk| chunk.items.len()).collect::<Vec<_>>(), [3, 1, 1, 1, 1, 1]);
        assert!(queue.iter().eq(close.into_iter().chain(far)));
    }
}
