//! Blocks: consecutive rows of a table laid together, so that redb keeps one value for many of them.
//! Pure; `docs/FORMAT.md` draws the bytes.
//!
//! A block stands under the number of its first row. A row in it is its number less that one (`u32`),
//! its length (`u32`), and its bytes. Rows seal themselves: a block adds no checksum.

use std::ops::Range;

use crate::error::{Error, Result};

/// No block is longer, but one with a single row that is: it fills one page of redb's, less the 16
/// bytes that redb takes of it.
const BLOCK_BYTES_MAX: usize = 4096 - 16;

/// Before each row: its number less the block's, and its length.
const HEAD_BYTES: usize = 8;

/// Rows to be written, in blocks.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    arena: Vec<u8>,
    /// The number of each block's first row, and where the block begins.
    blocks: Vec<(u64, usize)>,
    /// The number of each row, and where its bytes are.
    rows: Vec<(u64, Range<usize>)>,
}

impl Blocks {
    /// Adds a row that `seal` appends, and gives its bytes back. Numbers only rise.
    pub fn append(&mut self, number: u64, seal: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<&[u8]> {
        let start = self.arena.len();
        let row = start + HEAD_BYTES;
        self.arena.resize(row, 0);
        let sealed = seal(&mut self.arena).and_then(|()| {
            let len = self.arena.len() - row;
            u32::try_from(len).map_err(|_| Error::bad_input(format!("a row of {len} bytes is over the limit of 4 GiB")))
        });
        let len = match sealed {
            Ok(len) => len,
            Err(error) => {
                self.arena.truncate(start);
                return Err(error);
            }
        };
        let fits = |(first, begin): &&(u64, usize)| {
            self.arena.len() - begin <= BLOCK_BYTES_MAX && number - first <= u64::from(u32::MAX)
        };
        let first = match self.blocks.last().filter(fits) {
            Some((first, _)) => *first,
            None => {
                self.blocks.push((number, start));
                number
            }
        };
        if let Some(head) = self.arena.get_mut(start..row) {
            head.copy_from_slice(&head_of((number - first) as u32, len));
        }
        self.rows.push((number, row..self.arena.len()));
        Ok(self.arena.get(row..).unwrap_or_default())
    }

    /// A row that was added.
    pub fn row(&self, number: u64) -> Option<&[u8]> {
        let at = self.rows.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.arena.get(self.rows.get(at)?.1.clone())
    }

    /// The blocks, each with the number that it stands under.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let ends = self.blocks.iter().skip(1).map(|(_, begin)| *begin).chain([self.arena.len()]);
        let blocks = self.blocks.iter().zip(ends);
        blocks.filter_map(|((first, begin), end)| Some((*first, self.arena.get(*begin..end)?)))
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many bytes the blocks have.
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.blocks.clear();
        self.rows.clear();
    }
}

fn head_of(number: u32, len: u32) -> [u8; HEAD_BYTES] {
    (u64::from(number) | u64::from(len) << 32).to_le_bytes()
}

/// The rows of the block under `first`, with their numbers. Ends with `None` where it is not whole.
pub(crate) fn rows_of(first: u64, block: &[u8]) -> impl Iterator<Item = Option<(u64, &[u8])>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((number, row, others)) = split(first, rest) else {
            rest = &[];
            return Some(None);
        };
        rest = others;
        Some(Some((number, row)))
    })
}

fn split(first: u64, block: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (head, rest) = block.split_first_chunk::<HEAD_BYTES>()?;
    let head = u64::from_le_bytes(*head);
    let (row, others) = rest.split_at_checked(usize::try_from(head >> 32).ok()?)?;
    Some((first.checked_add(head & u64::from(u32::MAX))?, row, others))
}

/// One row of the block under `first`: `None` where it is not in it, `Some(None)` where the block is
/// not whole.
pub(crate) fn row_of(first: u64, block: &[u8], number: u64) -> Option<Option<&[u8]>> {
    let mut rows = rows_of(first, block);
    rows.find(|row| row.is_none_or(|(at, _)| at == number)).map(|row| row.map(|(_, row)| row))
}

/// The block without the rows that are not to be kept.
pub(crate) fn thinned(first: u64, block: &[u8], keep: impl Fn(u64) -> bool) -> Vec<u8> {
    let mut thin = Vec::with_capacity(block.len());
    for (number, row) in rows_of(first, block).flatten().filter(|(number, _)| keep(*number)) {
        thin.extend_from_slice(&head_of((number - first) as u32, row.len() as u32));
        thin.extend_from_slice(row);
    }
    thin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64) -> Vec<u8> {
        vec![number as u8; (number % 10 * 31) as usize + if number % 40 == 7 { 9000 } else { 0 }]
    }

    fn blocks(numbers: &[u64]) -> Blocks {
        let mut blocks = Blocks::default();
        for number in numbers {
            let sealed = blocks.append(*number, |out| {
                out.extend_from_slice(&row(*number));
                Ok(())
            });
            assert_eq!(sealed.unwrap(), row(*number));
        }
        blocks
    }

    #[test]
    fn rows_come_back_in_order_and_blocks_stay_within_their_bound() {
        let numbers: Vec<u64> = (1..500).map(|n| n * 3).chain([1 << 40, (1 << 40) + 1, u64::MAX]).collect();
        let blocks = blocks(&numbers);
        let mut seen = Vec::new();
        for (first, block) in blocks.iter() {
            let rows: Vec<_> = rows_of(first, block).map(|row| row.expect("a whole block")).collect();
            assert!(block.len() <= BLOCK_BYTES_MAX || rows.len() == 1, "{} bytes, {} rows", block.len(), rows.len());
            for (number, bytes) in rows {
                assert_eq!(bytes, row(number));
                assert_eq!(blocks.row(number), Some(bytes));
                assert_eq!(row_of(first, block, number), Some(Some(bytes)));
                seen.push(number);
            }
            assert_eq!(row_of(first, block, first.wrapping_add(2)), None);
        }
        assert_eq!(seen, numbers);
        assert_eq!(blocks.row(4), None);
    }

    #[test]
    fn a_row_that_cannot_be_sealed_leaves_nothing() {
        let mut blocks = blocks(&[1, 2]);
        let before: Vec<_> = blocks.iter().map(|(first, block)| (first, block.to_vec())).collect();
        let failed = blocks.append(3, |out| {
            out.push(9);
            Err(Error::bad_input("not this one"))
        });
        assert!(failed.is_err());
        assert_eq!(blocks.iter().map(|(first, block)| (first, block.to_vec())).collect::<Vec<_>>(), before);
    }

    #[test]
    fn a_thinned_block_keeps_the_numbers_of_the_others() {
        let blocks = blocks(&[10, 12, 13, 17]);
        let (first, block) = blocks.iter().next().unwrap();
        let thin = thinned(first, block, |number| number != 10 && number != 13);
        assert_eq!(rows_of(first, &thin).flatten().map(|(number, _)| number).collect::<Vec<_>>(), [12, 17]);
        assert!(thinned(first, block, |_| false).is_empty());
    }

    #[test]
    fn a_cut_block_says_so() {
        let blocks = blocks(&[10, 12, 13]);
        let (first, block) = blocks.iter().next().unwrap();
        let ends: Vec<usize> = rows_of(first, block)
            .flatten()
            .scan(0, |end, (_, row)| {
                *end += HEAD_BYTES + row.len();
                Some(*end)
            })
            .collect();
        for cut in 1..block.len() {
            let whole = rows_of(first, &block[..cut]).all(|row| row.is_some());
            assert_eq!(whole, ends.contains(&cut), "cut at {cut}");
        }
    }
}
