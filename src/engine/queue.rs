//! A queue that grows by a chunk at a time: no step copies what is there, and none is long.

use std::collections::VecDeque;

/// First in, first out.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// None is empty. Items go to the last, which takes up to [`CHUNK`], and come from the first.
    chunks: VecDeque<VecDeque<T>>,
}

/// No chunk has more items.
const CHUNK: usize = 4096;

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { chunks: VecDeque::new() }
    }
}

impl<T: Copy> Queue<T> {
    /// Puts an item at the end.
    pub fn push(&mut self, item: T) {
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK => last.push_back(item),
            Some(_) | None => self.chunks.push_back(VecDeque::from([item])),
        }
    }

    /// The oldest item.
    pub fn front(&self) -> Option<T> {
        self.chunks.front().and_then(VecDeque::front).copied()
    }

    /// Takes the oldest item out.
    pub fn pop(&mut self) -> Option<T> {
        let first = self.chunks.front_mut()?;
        let item = first.pop_front();
        if first.is_empty() {
            self.chunks.pop_front();
        }
        item
    }

    /// All items, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.chunks.iter().flatten().copied()
    }
}

impl<T: Copy> FromIterator<T> for Queue<T> {
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
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Fills for a while, then empties, so that it is empty and has many chunks by turns.
            let fills = (step / 30_000) % 2 == 0;
            if (random >> 60 < 12) == fills {
                queue.push(step);
                model.push_back(step);
            } else {
                assert_eq!(queue.pop(), model.pop_front());
            }
            assert_eq!(queue.front(), model.front().copied());
        }
        assert!(queue.iter().eq(model.iter().copied()));
        assert!(queue.iter().collect::<Queue<_>>().iter().eq(model));
    }
}
