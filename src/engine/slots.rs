//! The slots of the index: every live key and its record, in chunks that never move.
//!
//! A slot is two cache lines of atomics; a larger cached body lies beside its chunk. Who may change a slot,
//! and how a reader tells a torn one, is the index's matter.

use std::sync::OnceLock;

use crate::engine::state::Record;
use crate::engine::sync::RwLock;
use crate::engine::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::outcome::Outcome;

/// A key's digest.
pub(crate) type KeyDigest = [u8; 32];

/// Numbers have at most so many bits: a bucket of the index holds one plus one, and a bit of tag.
const MAX_NUMBER_BITS: u32 = 31;

/// One key and its record, in two cache lines.
#[repr(align(64))]
pub(crate) struct Slot([AtomicU64; SLOT_WORDS]);

/// A key's digest, in words.
pub(crate) type Words = [u64; KEY_WORDS];

const KEY_WORDS: usize = 4;
const SLOT_WORDS: usize = KEY_WORDS + Record::WORDS;

/// A live claim must fit into 160 bytes with its share of table and due queue.
const _: () = assert!(cfg!(onceledger_shuttle) || size_of::<Slot>() == 128);

/// Slots in chunks that never move. The n-th group of chunks doubles what is there.
pub(crate) struct Slots {
    groups: [OnceLock<Box<[OnceLock<Chunk>]>>; GROUPS],
    /// Slots that some shard has: the next new one.
    end: AtomicU32,
}

struct Chunk {
    slots: Box<[Slot; CHUNK_SLOTS]>,
    /// Cached bodies, by slot, with the row each was read from. Made with the first of them.
    bodies: OnceLock<Box<[Body]>>,
}

/// A cached body and its row.
type Body = RwLock<Option<(u64, Outcome)>>;

// Few where schedules are explored: each is an object there.
const CHUNK_BITS: u32 = if cfg!(onceledger_shuttle) { 3 } else { 9 };
const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;
const GROUPS: usize = (MAX_NUMBER_BITS - CHUNK_BITS + 1) as usize;

#[inline]
pub(crate) fn words_of(key: &KeyDigest) -> Words {
    let (words, _) = key.as_chunks::<8>();
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_le_bytes(*word)))
}

#[inline]
fn key_of(words: Words) -> KeyDigest {
    let mut key = [0; 32];
    for (bytes, word) in key.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    key
}

impl Slots {
    pub fn new() -> Self {
        Slots { groups: std::array::from_fn(|_| OnceLock::new()), end: AtomicU32::new(0) }
    }

    /// Where a slot is: which group, which of its chunks, where in that.
    #[inline]
    fn locate(number: u32) -> (usize, usize, usize) {
        let chunk = number >> CHUNK_BITS;
        // Chunk 0, chunk 1, chunks 2 and 3, chunks 4 to 7, and so on.
        let group = u32::BITS - chunk.leading_zeros();
        let first = 1 << group >> 1;
        (group as usize, (chunk - first) as usize, number as usize % CHUNK_SLOTS)
    }

    #[inline]
    fn chunk(&self, number: u32) -> Option<(&Chunk, usize)> {
        let (group, chunk, offset) = Slots::locate(number);
        Some((self.groups.get(group)?.get()?.get(chunk)?.get()?, offset))
    }

    #[inline]
    pub fn get(&self, number: u32) -> Option<&Slot> {
        let (chunk, offset) = self.chunk(number)?;
        chunk.slots.get(offset)
    }

    /// Where a slot's large body is cached, if any of its chunk is.
    #[inline]
    fn place(&self, number: u32) -> Option<&Body> {
        let (chunk, offset) = self.chunk(number)?;
        chunk.bodies.get()?.get(offset)
    }

    /// The large body of a slot that was read from this row, where it is cached.
    #[inline]
    pub fn body(&self, number: u32, row: u64) -> Option<Outcome> {
        let body = self.place(number)?.read();
        body.as_ref().filter(|(cached, _)| *cached == row).map(|(_, body)| body.clone())
    }

    /// Caches a large body beside its slot.
    pub fn cache(&self, number: u32, row: u64, body: Outcome) {
        let Some((chunk, offset)) = self.chunk(number) else { return };
        let bodies = chunk.bodies.get_or_init(|| chunk.slots.iter().map(|_| RwLock::new(None)).collect());
        if let Some(place) = bodies.get(offset) {
            *place.write() = Some((row, body));
        }
    }

    /// Takes a slot's large body out, where it was read from such a row.
    pub fn uncache(&self, number: u32, is_such: impl FnOnce(u64) -> bool) {
        if let Some(place) = self.place(number) {
            place.write().take_if(|(cached, _)| is_such(*cached));
        }
    }

    /// Every number taken so far is below this.
    pub fn end(&self) -> u32 {
        self.end.load(Ordering::Acquire)
    }

    /// A number that no shard has.
    pub fn take(&self) -> u32 {
        let taken = self.end.fetch_add(1, Ordering::AcqRel);
        assert!(taken + 1 < 1 << MAX_NUMBER_BITS, "more than two billion live keys");
        taken
    }

    /// The slot, with its chunk made where it is the first in it.
    pub fn make(&self, number: u32) -> &Slot {
        let (group, chunk, offset) = Slots::locate(number);
        let chunks = 1_usize << group.saturating_sub(1);
        // In range: there are groups for all numbers, and each has so many chunks.
        let group = self.groups[group].get_or_init(|| (0..chunks).map(|_| OnceLock::new()).collect());
        &group[chunk].get_or_init(Chunk::new).slots[offset]
    }
}

impl Chunk {
    fn new() -> Self {
        let slots: Box<[Slot]> = (0..CHUNK_SLOTS).map(|_| Slot::new()).collect();
        match slots.try_into() {
            Ok(slots) => Chunk { slots, bodies: OnceLock::new() },
            Err(_) => unreachable!("so many slots were made"),
        }
    }
}

impl Slot {
    fn new() -> Self {
        let slot = Slot(std::array::from_fn(|_| AtomicU64::new(0)));
        slot.free();
        slot
    }

    /// Asks the processor for the line of the key.
    #[inline]
    pub fn touch(&self) -> u64 {
        self.0.first().map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn load<const N: usize>(&self, first: usize) -> [u64; N] {
        std::array::from_fn(|at| self.0.get(first + at).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    #[inline]
    fn store(&self, first: usize, words: &[u64]) {
        for (place, word) in self.0.iter().skip(first).zip(words) {
            // Whoever sees the last word, which says that the slot is in use, sees its key.
            place.store(*word, Ordering::Release);
        }
    }

    #[inline]
    fn key(&self) -> Words {
        self.load(0)
    }

    #[inline]
    pub fn digest(&self) -> KeyDigest {
        key_of(self.key())
    }

    /// Word by word: an array of them would be written to memory first.
    #[inline]
    pub fn has_key(&self, key: &Words) -> bool {
        self.0.iter().zip(key).fold(0, |other, (word, key)| other | word.load(Ordering::Relaxed) ^ key) == 0
    }

    #[inline]
    pub fn record(&self) -> Record {
        Record::from_words(self.load(KEY_WORDS))
    }

    #[inline]
    pub fn set(&self, key: Words, record: &Record) {
        self.store(0, &key);
        self.set_record(record);
    }

    #[inline]
    pub fn set_record(&self, record: &Record) {
        self.store(KEY_WORDS, &record.to_words());
    }

    /// Marks it free: its last word says nothing.
    #[inline]
    pub fn free(&self) {
        self.store(SLOT_WORDS - 1, &[Record::NOTHING]);
    }

    #[inline]
    pub fn is_used(&self) -> bool {
        self.0.last().is_some_and(|word| word.load(Ordering::Acquire) != Record::NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_all_numbers_have_a_place_of_their_own() {
        let mut expected = (0, 0, 0);
        for number in 0..200_000 {
            assert_eq!(Slots::locate(number), expected, "slot {number}");
            let (group, chunk, offset) = expected;
            let chunks = 1 << usize::saturating_sub(group, 1);
            expected = match (offset + 1 == CHUNK_SLOTS, chunk + 1 == chunks) {
                (false, _) => (group, chunk, offset + 1),
                (true, false) => (group, chunk + 1, 0),
                (true, true) => (group + 1, 0, 0),
            };
        }
        assert_eq!(Slots::locate((1 << MAX_NUMBER_BITS) - 1).0, GROUPS - 1);
    }
}
