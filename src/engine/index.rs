//! The state of every live key, in memory: what a check reads and a decision is made on.
//!
//! 256 shards by the first bits of the key. A shard is an open-addressed table of slot numbers and the
//! slots, all of them atomics. A reader takes no lock and writes nothing: it reads the shard's version,
//! looks, and looks again where the version has changed (a sequence lock). Writers of one shard take
//! turns. Tables and chunks of slots only ever grow, each shard alone: slots by a sixteenth at most, a
//! table by a second half beside its first. Nothing is copied and nothing is left behind.
//!
//! Nothing here is ever evicted but outcome bodies, which lie beside the slots: no cache decides a grant.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;

use crossbeam_utils::CachePadded;
use hashbrown::{HashMap, HashSet};

use crate::engine::lines::Lines;
use crate::engine::state::Record;
use crate::engine::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use crate::engine::sync::{Mutex, RwLock};
use crate::outcome::{Outcome, SMALL_BYTES_MAX};

/// A key's digest.
pub(crate) type KeyDigest = [u8; 32];

// Schedules are explored on few shards: the sequence lock is what matters there.
const SHARD_BITS: u32 = if cfg!(onceledger_shuttle) { 2 } else { 8 };
const SHARDS: usize = 1 << SHARD_BITS;
const SLOT_BITS: u32 = 32 - SHARD_BITS;

/// Names a slot across shards: which shard, which slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotId(u32);

impl SlotId {
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    pub fn from_bytes(bytes: [u8; 4]) -> Self {
        SlotId(u32::from_le_bytes(bytes))
    }
}

/// The whole index.
pub(crate) struct Index {
    shards: Box<[CachePadded<Shard>]>,
    /// Bodies of a few bytes. Larger ones lie beside the slots.
    lines: Lines,
}

struct Shard {
    /// Odd while a writer changes the shard; different after.
    version: AtomicU64,
    /// How many of the table's parts are in use, less one.
    level: AtomicU8,
    parts: [OnceLock<Box<[AtomicU32]>>; LEVELS],
    slots: Slots,
    writer: Mutex<Writer>,
}

/// What only the writer of a shard needs.
#[derive(Default)]
struct Writer {
    /// Slots in use.
    live: u32,
    /// Slots ever used: the next new one.
    end: u32,
    free: Vec<u32>,
}

/// A table has 2^4 buckets at first, and doubles by another part as large as all before it.
const FIRST_PART: usize = 1 << FIRST_LEVEL_BITS;
const FIRST_LEVEL_BITS: u32 = 4;
const LEVELS: usize = (SLOT_BITS + 2 - FIRST_LEVEL_BITS) as usize;

/// The buckets of a shard that are in use: a power of two of them.
#[derive(Clone, Copy)]
struct Table<'a> {
    parts: &'a [OnceLock<Box<[AtomicU32]>>; LEVELS],
    mask: usize,
}

/// A bucket is 0 where it is empty, or a slot's number plus one under a tag of the key's hash.
const TAG_SHIFT: u32 = SLOT_BITS + 1;

/// One key and its record, in two cache lines.
#[repr(align(64))]
struct Slot([AtomicU64; SLOT_WORDS]);

const KEY_WORDS: usize = 4;
const SLOT_WORDS: usize = KEY_WORDS + Record::WORDS;

/// A live claim must fit into 160 bytes with its share of table and due queue.
const _: () = assert!(cfg!(onceledger_shuttle) || size_of::<Slot>() == 128);

/// Slots in chunks that never move. The n-th group of sixteen chunks doubles what is there.
struct Slots {
    chunks: [OnceLock<Chunk>; CHUNKS],
}

struct Chunk {
    slots: Box<[Slot]>,
    /// Cached bodies, by slot, with the row each was read from. Made with the first of them.
    bodies: OnceLock<Box<[Body]>>,
}

/// A cached body and its row.
type Body = RwLock<Option<(u64, Outcome)>>;

/// Slots of the first group of chunks.
const FIRST_GROUP_BITS: u32 = 5;
const GROUP_CHUNKS: u32 = 1 << GROUP_CHUNK_BITS;
// Fewer where schedules are explored: the stacks there are small.
const GROUP_CHUNK_BITS: u32 = if cfg!(onceledger_shuttle) { 3 } else { 4 };
const CHUNKS: usize = ((SLOT_BITS - FIRST_GROUP_BITS + 1) * GROUP_CHUNKS) as usize;

#[inline]
fn shard_of(key: &KeyDigest) -> usize {
    usize::from(key[0] >> (8 - SHARD_BITS))
}

/// Keys are SHA-256 digests: bytes that the shard does not use are as good as any hash.
#[inline]
fn hash_of(key: &KeyDigest) -> u64 {
    let [_, a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32 >> TAG_SHIFT << TAG_SHIFT
}

#[inline]
fn key_words(key: &KeyDigest) -> [u64; KEY_WORDS] {
    let (words, _) = key.as_chunks::<8>();
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_le_bytes(*word)))
}

fn key_of(words: [u64; KEY_WORDS]) -> KeyDigest {
    let mut key = [0; 32];
    for (bytes, word) in key.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    key
}

impl Index {
    /// An empty index, with so many bytes for small bodies.
    pub fn new(small_bytes: usize) -> Self {
        Index { shards: (0..SHARDS).map(|_| CachePadded::new(Shard::new())).collect(), lines: Lines::new(small_bytes) }
    }

    #[inline]
    fn shard(&self, key: &KeyDigest) -> &Shard {
        // In range: SHARD_BITS bits, and a shard for each.
        &self.shards[shard_of(key)]
    }

    /// The record of a key.
    pub fn get(&self, key: &KeyDigest) -> Option<Record> {
        self.look(key).map(|(record, _)| record)
    }

    /// The record of a key, and its slot. Takes no lock.
    #[inline]
    pub fn look(&self, key: &KeyDigest) -> Option<(Record, SlotId)> {
        let (words, hash) = (key_words(key), hash_of(key));
        let shard = self.shard(key);
        let found = shard.consistent(|| {
            let (number, slot) = shard.find(&words, hash)?;
            // Slot and outcome are in no near cache, and each is waited for: both are asked for at once.
            std::hint::black_box(self.lines.touch(place_of(id(shard_of(key), number))));
            Some((number, slot.record()))
        });
        found.map(|(number, record)| (record, id(shard_of(key), number)))
    }

    /// The cached body of a settled record, where it is cached.
    #[inline(always)]
    pub fn body(&self, id: SlotId, record: &Record) -> Option<Outcome> {
        let row = record.link;
        if record.body_len == 0 {
            return Some(Outcome::new(record.form.kind(), record.form.is_error(), &[]));
        }
        if record.body_len as usize <= SMALL_BYTES_MAX {
            return self.lines.get(place_of(id), row);
        }
        let (chunk, offset) = self.shards.get((id.0 >> SLOT_BITS) as usize)?.slots.chunk(slot_of(id))?;
        let body = chunk.bodies.get()?.get(offset)?.read();
        body.as_ref().filter(|(cached, _)| *cached == row).map(|(_, body)| body.clone())
    }

    /// Puts a key's record in place, whatever was there.
    #[cfg(test)]
    pub fn put(&self, key: &KeyDigest, record: &Record) -> SlotId {
        self.apply(key, |_| Some(*record)).expect("something is put").0
    }

    /// Puts what `change` makes of a key's record in its place, with one look for both. Nothing
    /// changes where it makes nothing.
    pub fn apply(
        &self,
        key: &KeyDigest,
        change: impl FnOnce(Option<Record>) -> Option<Record>,
    ) -> Option<(SlotId, Record)> {
        let (shard, words, hash) = (self.shard(key), key_words(key), hash_of(key));
        let mut writer = shard.writer.lock();
        let found = shard.find(&words, hash);
        let record = change(found.map(|(_, slot)| slot.record()))?;
        let number = shard.set(&mut writer, found, words, hash, &record);
        Some((id(shard_of(key), number), record))
    }

    /// Changes a record in place, where the key is there. For marks in memory only.
    pub fn update(&self, key: &KeyDigest, change: impl FnOnce(&mut Record)) -> bool {
        let shard = self.shard(key);
        let _writer = shard.writer.lock();
        let Some((_, slot)) = shard.find(&key_words(key), hash_of(key)) else { return false };
        let mut record = slot.record();
        change(&mut record);
        shard.change(|| slot.set_record(&record));
        true
    }

    /// Caches a body. A slot that has another key by now is no harm: the row tells.
    pub fn cache(&self, id: SlotId, row: u64, body: Outcome) {
        if body.body().is_empty() {
            // Its record says all there is to say.
            return;
        }
        if body.as_small().is_some() {
            return self.lines.put(place_of(id), row, &body);
        }
        let shard = self.shards.get((id.0 >> SLOT_BITS) as usize);
        let Some((chunk, offset)) = shard.and_then(|shard| shard.slots.chunk(slot_of(id))) else { return };
        let bodies = chunk.bodies.get_or_init(|| chunk.slots.iter().map(|_| RwLock::new(None)).collect());
        if let Some(place) = bodies.get(offset) {
            *place.write() = Some((row, body));
        }
    }

    /// Takes a large body out, where it is still the one of this row.
    pub fn uncache(&self, id: SlotId, row: u64) {
        let shard = self.shards.get((id.0 >> SLOT_BITS) as usize);
        let Some((chunk, offset)) = shard.and_then(|shard| shard.slots.chunk(slot_of(id))) else { return };
        if let Some(place) = chunk.bodies.get().and_then(|bodies| bodies.get(offset)) {
            let mut place = place.write();
            if place.as_ref().is_some_and(|(cached, _)| *cached == row) {
                *place = None;
            }
        }
    }

    /// Forgets a key.
    pub fn remove(&self, key: &KeyDigest) -> Option<Record> {
        let (number, record) = self.shard(key).remove(&key_words(key), hash_of(key))?;
        self.lines.remove(place_of(id(shard_of(key), number)), record.link);
        Some(record)
    }

    /// The key and record in a slot, where it is in use.
    pub fn at(&self, id: SlotId) -> Option<(KeyDigest, Record)> {
        let shard = self.shards.get((id.0 >> SLOT_BITS) as usize)?;
        shard.consistent(|| {
            let slot = shard.slots.get(slot_of(id))?;
            slot.is_used().then(|| (key_of(slot.key()), slot.record()))
        })
    }

    /// The key and record of every live key, shard by shard in ascending order of key, from the
    /// first key after `after`. `take` says whether to go on.
    pub fn walk(&self, after: Option<&KeyDigest>, mut take: impl FnMut(KeyDigest, Record) -> bool) {
        let first = after.map_or(0, shard_of);
        for shard in self.shards.iter().skip(first) {
            let mut page = Vec::new();
            shard.for_each(|key, record| {
                if after.is_none_or(|after| *key > *after) {
                    page.push((*key, *record));
                }
            });
            page.sort_unstable_by_key(|(key, _)| *key);
            for (key, record) in page {
                if !take(key, record) {
                    return;
                }
            }
        }
    }

    /// Looks at every live key, in no order. Writers of a shard wait while it is looked at.
    pub fn for_each(&self, mut look: impl FnMut(&KeyDigest, &Record)) {
        for shard in &self.shards {
            shard.for_each(&mut look);
        }
    }
}

#[inline]
fn id(shard: usize, number: u32) -> SlotId {
    SlotId((shard as u32) << SLOT_BITS | number)
}

#[inline]
fn slot_of(id: SlotId) -> u32 {
    id.0 & ((1 << SLOT_BITS) - 1)
}

/// Slots counted over all shards: the first of each, then the second of each.
#[inline]
fn place_of(id: SlotId) -> u32 {
    id.0.rotate_left(SHARD_BITS)
}

impl Shard {
    fn new() -> Self {
        let shard = Shard {
            version: AtomicU64::new(0),
            level: AtomicU8::new(0),
            parts: std::array::from_fn(|_| OnceLock::new()),
            slots: Slots { chunks: std::array::from_fn(|_| OnceLock::new()) },
            writer: Mutex::new(Writer::default()),
        };
        shard.make_part(0);
        shard
    }

    /// Runs a look until no writer came between. `look` may see torn values; it must not trust them.
    #[inline]
    fn consistent<T>(&self, look: impl Fn() -> T) -> T {
        loop {
            let before = self.version.load(Ordering::Acquire);
            if before & 1 == 0 {
                let seen = look();
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before {
                    return seen;
                }
            }
            crate::engine::sync::spin();
        }
    }

    /// Changes the shard while readers look again. Only with the writer's lock.
    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    #[inline]
    fn table(&self) -> Table<'_> {
        let level = self.level.load(Ordering::Relaxed);
        Table { parts: &self.parts, mask: (FIRST_PART << level) - 1 }
    }

    fn make_part(&self, level: u8) {
        let len = FIRST_PART << level.saturating_sub(1);
        if let Some(part) = self.parts.get(usize::from(level)) {
            part.get_or_init(|| (0..len).map(|_| AtomicU32::new(0)).collect());
        }
    }

    #[inline]
    fn find(&self, words: &[u64; KEY_WORDS], hash: u64) -> Option<(u32, &Slot)> {
        let table = self.table();
        let place = self.place(table, words, hash)?;
        let number = number_in(table.get(place)?)?;
        Some((number, self.slots.get(number)?))
    }

    /// The bucket that holds a key. Bounded: a torn look ends too.
    #[inline]
    fn place(&self, table: Table<'_>, words: &[u64; KEY_WORDS], hash: u64) -> Option<usize> {
        let tag = tag_of(hash);
        for step in 0..=table.mask {
            let place = (hash as usize).wrapping_add(step) & table.mask;
            let bucket = table.get(place)?;
            let number = number_in(bucket)?;
            if bucket >> TAG_SHIFT << TAG_SHIFT == tag && self.slots.get(number).is_some_and(|slot| slot.has_key(words))
            {
                return Some(place);
            }
        }
        None
    }

    /// Puts a record where its key was found, or into a new slot.
    fn set(
        &self,
        writer: &mut Writer,
        found: Option<(u32, &Slot)>,
        words: [u64; KEY_WORDS],
        hash: u64,
        record: &Record,
    ) -> u32 {
        if let Some((number, slot)) = found {
            self.change(|| slot.set_record(record));
            return number;
        }
        let number = writer.free.pop().unwrap_or_else(|| {
            writer.end += 1;
            writer.end - 1
        });
        writer.live += 1;
        let slot = self.slots.make(number);
        // At most three quarters full.
        let full = writer.live as usize * 4 > (self.table().mask + 1) * 3;
        if full {
            self.make_part(self.level.load(Ordering::Relaxed) + 1);
        }
        self.change(|| {
            slot.set(words, record);
            if full {
                self.double();
            } else {
                self.table().enter(hash, number);
            }
        });
        number
    }

    /// Takes the next part into use, and enters every slot in use anew.
    fn double(&self) {
        self.level.store(self.level.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let table = self.table();
        (0..=table.mask).for_each(|place| table.set(place, 0));
        for (number, slot) in self.slots.used() {
            table.enter(hash_of(&key_of(slot.key())), number);
        }
    }

    fn remove(&self, words: &[u64; KEY_WORDS], hash: u64) -> Option<(u32, Record)> {
        let mut writer = self.writer.lock();
        let (number, slot) = self.find(words, hash)?;
        let table = self.table();
        let place = self.place(table, words, hash)?;
        let record = slot.record();
        self.change(|| {
            slot.free();
            self.close_gap(table, place);
        });
        writer.live = writer.live.saturating_sub(1);
        writer.free.push(number);
        drop(writer);
        // Its body goes too, where one was cached.
        if let Some((chunk, offset)) = self.slots.chunk(number)
            && let Some(place) = chunk.bodies.get().and_then(|bodies| bodies.get(offset))
        {
            *place.write() = None;
        }
        Some((number, record))
    }

    /// Empties a bucket and moves those back that had gone past it.
    fn close_gap(&self, table: Table<'_>, mut gap: usize) {
        let mut next = gap;
        loop {
            next = next.wrapping_add(1) & table.mask;
            let bucket = table.get(next).unwrap_or(0);
            let Some(slot) = number_in(bucket).and_then(|number| self.slots.get(number)) else { break };
            let home = hash_of(&key_of(slot.key())) as usize & table.mask;
            // It may move back where its home is not between the gap (excluded) and itself.
            if next.wrapping_sub(home) & table.mask >= next.wrapping_sub(gap) & table.mask {
                table.set(gap, bucket);
                gap = next;
            }
        }
        table.set(gap, 0);
    }

    fn for_each(&self, mut look: impl FnMut(&KeyDigest, &Record)) {
        let _writer = self.writer.lock();
        for (_, slot) in self.slots.used() {
            look(&key_of(slot.key()), &slot.record());
        }
    }
}

#[inline]
fn number_in(bucket: u32) -> Option<u32> {
    (bucket & ((1 << TAG_SHIFT) - 1)).checked_sub(1)
}

impl Table<'_> {
    /// The bucket at a place. The part that ends below the next power of two has it.
    #[inline]
    fn bucket(&self, place: usize) -> Option<&AtomicU32> {
        let top = (place | (FIRST_PART - 1)).ilog2();
        let part = self.parts.get((top + 1 - FIRST_LEVEL_BITS) as usize)?.get()?;
        part.get(place - (1 << top & !(FIRST_PART - 1)))
    }

    #[inline]
    fn get(&self, place: usize) -> Option<u32> {
        Some(self.bucket(place)?.load(Ordering::Relaxed))
    }

    fn set(&self, place: usize, value: u32) {
        if let Some(bucket) = self.bucket(place) {
            bucket.store(value, Ordering::Relaxed);
        }
    }

    /// Puts a slot's number into the first empty bucket after its home.
    fn enter(&self, hash: u64, number: u32) {
        let places = (0..=self.mask).map(|step| (hash as usize).wrapping_add(step) & self.mask);
        if let Some(place) = { places }.find(|place| self.get(*place) == Some(0)) {
            self.set(place, (number + 1) | tag_of(hash));
        }
    }
}

impl Slots {
    /// Where a slot is: which chunk, and where in it.
    #[inline]
    fn locate(number: u32) -> (usize, usize, usize) {
        let shifted = number + (1 << FIRST_GROUP_BITS);
        let group = shifted.ilog2();
        let chunk_bits = group - GROUP_CHUNK_BITS;
        let chunk = (group - FIRST_GROUP_BITS) * GROUP_CHUNKS + (shifted >> chunk_bits & (GROUP_CHUNKS - 1));
        let offset = shifted & ((1 << chunk_bits) - 1);
        (chunk as usize, offset as usize, 1 << chunk_bits)
    }

    #[inline]
    fn chunk(&self, number: u32) -> Option<(&Chunk, usize)> {
        let (chunk, offset, _) = Slots::locate(number);
        Some((self.chunks.get(chunk)?.get()?, offset))
    }

    #[inline]
    fn get(&self, number: u32) -> Option<&Slot> {
        let (chunk, offset) = self.chunk(number)?;
        chunk.slots.get(offset)
    }

    /// The slot, with its chunk made where it is the first in it.
    fn make(&self, number: u32) -> &Slot {
        let (chunk, offset, len) = Slots::locate(number);
        let empty = || Chunk { slots: (0..len).map(|_| Slot::new()).collect(), bodies: OnceLock::new() };
        // In range: a number has SLOT_BITS bits, and there are chunks for all of them.
        &self.chunks[chunk].get_or_init(empty).slots[offset]
    }

    fn used(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let chunks = self.chunks.iter().map_while(OnceLock::get);
        let slots = chunks.flat_map(|chunk| chunk.slots.iter());
        (0_u32..).zip(slots).filter(|(_, slot)| slot.is_used())
    }
}

impl Slot {
    fn new() -> Self {
        let slot = Slot(std::array::from_fn(|_| AtomicU64::new(0)));
        slot.free();
        slot
    }

    #[inline]
    fn load<const N: usize>(&self, first: usize) -> [u64; N] {
        std::array::from_fn(|at| self.0.get(first + at).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    fn store(&self, first: usize, words: &[u64]) {
        for (place, word) in self.0.iter().skip(first).zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    #[inline]
    fn key(&self) -> [u64; KEY_WORDS] {
        self.load(0)
    }

    /// Word by word: an array of them would be written to memory first.
    #[inline]
    fn has_key(&self, key: &[u64; KEY_WORDS]) -> bool {
        self.0.iter().zip(key).fold(0, |other, (word, key)| other | word.load(Ordering::Relaxed) ^ key) == 0
    }

    #[inline]
    fn record(&self) -> Record {
        Record::from_words(self.load(KEY_WORDS))
    }

    fn set(&self, key: [u64; KEY_WORDS], record: &Record) {
        self.store(0, &key);
        self.set_record(record);
    }

    fn set_record(&self, record: &Record) {
        self.store(KEY_WORDS, &record.to_words());
    }

    /// A slot whose last word says nothing is free.
    fn free(&self) {
        self.store(SLOT_WORDS - 1, &[Record::NOTHING]);
    }

    fn is_used(&self) -> bool {
        self.load::<1>(SLOT_WORDS - 1) != [Record::NOTHING]
    }
}

/// Keys are digests and tokens are counters: their own bits serve as the hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct OwnBits(u64);

impl Hasher for OwnBits {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn write_u64(&mut self, number: u64) {
        // The golden ratio spreads consecutive tokens over all bits.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Bits = BuildHasherDefault<OwnBits>;
pub(crate) type DigestSet = HashSet<KeyDigest, Bits>;
pub(crate) type DigestMap<V> = HashMap<KeyDigest, V, Bits>;
pub(crate) type TokenMap<V> = HashMap<u64, V, Bits>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::{Reason, RecoveryRule};
    use crate::engine::state::{Form, PackedRule, Stored};
    use crate::outcome::Kind;
    use std::collections::BTreeMap;

    fn record(token: u64) -> Record {
        Record {
            fingerprint: [token as u8; 32],
            token,
            last: token.wrapping_add(1),
            at: !token,
            link: token.rotate_left(7),
            first_attempt_s: 1,
            attempt: 2,
            body_len: 3,
            keep_s: 4,
            remember_s: 5,
            since_s: 6,
            rule: PackedRule::new(RecoveryRule::Resend(7)),
            standing: Stored::Uncertain(Reason::Panicked),
            form: Form::new(Kind::Text, true).marked(),
            rows: 9,
        }
    }

    /// Few shards and few homes, so that tables grow, wrap and close gaps.
    fn key(number: u64) -> KeyDigest {
        let mut key = [0; 32];
        key[0] = (number % 3) as u8;
        key[1] = (number % 11) as u8 * 23;
        key[16..24].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn a_record_survives_its_words() {
        for token in [0, 1, u64::MAX, 1 << 40] {
            assert_eq!(Record::from_words(record(token).to_words()), record(token));
        }
    }

    #[test]
    fn the_index_agrees_with_a_map_whatever_is_put_and_removed() {
        let index = Index::new(0);
        let mut map = BTreeMap::new();
        let mut random = 0x1234_5678_u64;
        for step in 0..40_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (random >> 33) % 3000;
            if random >> 60 < 9 {
                let id = index.put(&key(number), &record(step));
                map.insert(key(number), record(step));
                assert_eq!(index.at(id), Some((key(number), record(step))));
            } else {
                assert_eq!(index.remove(&key(number)), map.remove(&key(number)), "step {step}");
            }
            assert_eq!(index.get(&key(number)), map.get(&key(number)).copied(), "step {step}");
        }
        let mut seen = Vec::new();
        index.walk(None, |key, record| {
            seen.push((key, record));
            true
        });
        assert_eq!(seen, map.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn slots_of_all_numbers_have_a_place_of_their_own() {
        let mut expected = (0, 0);
        for number in 0..200_000 {
            let (chunk, offset, len) = Slots::locate(number);
            assert_eq!((chunk, offset), expected, "slot {number}");
            expected = if offset + 1 == len { (chunk + 1, 0) } else { (chunk, offset + 1) };
        }
        let (chunk, _, _) = Slots::locate((1 << SLOT_BITS) - 1);
        assert!(chunk < CHUNKS);
    }

    #[test]
    fn a_reader_never_sees_half_a_record() {
        let (index, done) = (&Index::new(0), &std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        for number in 0..64 {
                            if let Some(seen) = index.get(&key(number)) {
                                assert_eq!(seen, record(seen.token), "half a record");
                            }
                        }
                    }
                });
            }
            for step in 0..30_000 {
                let number = step % 64;
                if step % 5 == 0 {
                    index.remove(&key(number));
                } else {
                    index.put(&key(number), &record(step));
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
