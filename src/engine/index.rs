//! The state of every live key, in memory: what a check reads and a decision is made on.
//!
//! 256 shards by the first bits of the key, each an open-addressed table of slot numbers, and one array of
//! slots for all (`slots.rs`), in the order in which keys came. All of it is atomics. A reader takes no lock and writes
//! nothing: it reads the shard's version, looks, and looks again where the version has changed (a sequence
//! lock). Writers of one shard take turns. Tables and slots only ever grow: slots by a chunk of one size,
//! a table by a second half beside its first. No slot moves, and nothing is left behind.
//!
//! Nothing here is ever evicted but outcome bodies, which lie beside the slots: no cache decides a grant.

use std::sync::OnceLock;

use crossbeam_utils::CachePadded;

use crate::engine::lines::Lines;
pub(crate) use crate::engine::slots::KeyDigest;
use crate::engine::slots::{self, Slot, Slots, Words};
use crate::engine::state::Record;
use crate::engine::sync::Mutex;
use crate::engine::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use crate::outcome::{Outcome, SMALL_BYTES_MAX};

// Schedules are explored on few shards: the sequence lock is what matters there.
const SHARD_BITS: u32 = if cfg!(onceledger_shuttle) { 2 } else { 8 };
const SHARDS: usize = 1 << SHARD_BITS;

/// Names a slot: its number.
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
    slots: Slots,
    /// Bodies of a few bytes. Larger ones lie beside the slots.
    lines: Lines,
}

struct Shard {
    /// Odd while a writer changes the shard; different after.
    version: AtomicU64,
    /// How many of the table's parts are in use, less one.
    level: AtomicU8,
    /// Bits of a slot's number in a bucket; the tag has the rest.
    number_bits: AtomicU8,
    parts: [OnceLock<Box<[AtomicU32]>>; LEVELS],
    writer: Mutex<Writer>,
}

/// What only the writer of a shard needs.
#[derive(Default)]
struct Writer {
    /// Slots in use.
    live: u32,
    /// Slots of this shard that are not in use: they never go to another.
    free: Vec<u32>,
}

/// A table has 2^4 buckets at first, and doubles by another part as large as all before it.
const FIRST_PART: usize = 1 << FIRST_LEVEL_BITS;
const FIRST_LEVEL_BITS: u32 = 4;
/// Up to 2^26 buckets, six times the share of a shard where every number is taken.
const LEVELS: usize = if cfg!(onceledger_shuttle) { 8 } else { 26 + 1 - FIRST_LEVEL_BITS as usize };

/// The buckets of a shard that are in use: a power of two of them.
#[derive(Clone, Copy)]
struct Table<'a> {
    parts: &'a [OnceLock<Box<[AtomicU32]>>; LEVELS],
    mask: usize,
    number_bits: u32,
}

/// A bucket is 0 where it is empty, or a slot's number plus one under a tag of the key's hash. A number of
/// more bits takes them from the tags of its shard; tests come there early.
const FIRST_NUMBER_BITS: u8 = if cfg!(test) { 9 } else { 25 };

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

/// The bits of a bucket over those of the number. One at least is left.
#[inline]
fn tag_of(word: u32, number_bits: u32) -> u32 {
    word >> number_bits << number_bits
}

impl Index {
    /// An empty index, with so many bytes for small bodies.
    pub fn new(small_bytes: usize) -> Self {
        Index {
            shards: (0..SHARDS).map(|_| CachePadded::new(Shard::new())).collect(),
            slots: Slots::new(),
            lines: Lines::new(small_bytes),
        }
    }

    /// Makes room in the tables for so many keys. Only before the first.
    pub fn expect(&self, keys: u64) {
        let share = usize::try_from(keys).unwrap_or(usize::MAX) / SHARDS;
        self.shards.iter().for_each(|shard| shard.expect(share));
    }

    /// Asks the processor for where these keys are. Neither bucket nor slot is in a near cache: one by one each
    /// would be waited for.
    pub fn touch<'a>(&self, keys: impl Iterator<Item = &'a KeyDigest>) {
        let touch = |key| {
            let table = self.shard(key).table();
            let bucket = table.get(hash_of(key) as usize & table.mask)?;
            let slot = self.slots.get(table.number_in(bucket)?)?;
            Some(slot.touch())
        };
        std::hint::black_box(keys.filter_map(touch).fold(0, |all, word| all ^ word));
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
        let (words, hash) = (slots::words_of(key), hash_of(key));
        let shard = self.shard(key);
        shard.consistent(|| {
            let (number, slot) = shard.find(&self.slots, &words, hash)?;
            // Slot and outcome are in no near cache, and each is waited for: both are asked for at once.
            std::hint::black_box(self.lines.touch(number));
            Some((slot.record(), SlotId(number)))
        })
    }

    /// The cached body of a settled record, where it is cached.
    #[inline(always)]
    pub fn body(&self, id: SlotId, record: &Record) -> Option<Outcome> {
        let row = record.link;
        if record.body_len == 0 {
            return Some(Outcome::new(record.form.kind(), record.form.is_error(), &[]));
        }
        if record.body_len as usize <= SMALL_BYTES_MAX {
            return self.lines.get(id.0, row);
        }
        self.slots.body(id.0, row)
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
        let (shard, words, hash) = (self.shard(key), slots::words_of(key), hash_of(key));
        let mut writer = shard.writer.lock();
        let found = shard.find(&self.slots, &words, hash);
        let record = change(found.map(|(_, slot)| slot.record()))?;
        let number = match found {
            Some((number, slot)) => {
                shard.change(|| slot.set_record(&record));
                number
            }
            None => shard.enter(&self.slots, &mut writer, words, hash, &record),
        };
        Some((SlotId(number), record))
    }

    /// Changes a record in place, where the key is there. For marks in memory only.
    pub fn update(&self, key: &KeyDigest, change: impl FnOnce(&mut Record)) -> bool {
        let shard = self.shard(key);
        let _writer = shard.writer.lock();
        let Some((_, slot)) = shard.find(&self.slots, &slots::words_of(key), hash_of(key)) else { return false };
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
            return self.lines.put(id.0, row, &body);
        }
        self.slots.cache(id.0, row, body);
    }

    /// Takes a large body out, where it is still the one of this row.
    pub fn uncache(&self, id: SlotId, row: u64) {
        self.slots.uncache(id.0, |cached| cached == row);
    }

    /// Forgets a key.
    pub fn remove(&self, key: &KeyDigest) -> Option<Record> {
        let (number, record) = self.shard(key).remove(&self.slots, &slots::words_of(key), hash_of(key))?;
        // Its body goes too, where one was cached.
        self.lines.remove(number, record.link);
        self.slots.uncache(number, |_| true);
        Some(record)
    }

    /// The key and record in a slot, where it is in use.
    pub fn at(&self, id: SlotId) -> Option<(KeyDigest, Record)> {
        // Once it is in use its key says which shard it is of, and it stays with that.
        let slot = self.slots.get(id.0).filter(|slot| slot.is_used())?;
        self.shard(&slot.digest()).consistent(|| slot.is_used().then(|| (slot.digest(), slot.record())))
    }

    /// The key and record of every live key, shard by shard in ascending order of key, from the
    /// first key after `after`. `take` says whether to go on.
    pub fn walk(&self, after: Option<&KeyDigest>, mut take: impl FnMut(KeyDigest, Record) -> bool) {
        let first = after.map_or(0, shard_of);
        for shard in self.shards.iter().skip(first) {
            let mut page = Vec::new();
            shard.for_each(&self.slots, |key, record| {
                if after.is_none_or(|after| key > *after) {
                    page.push((key, record));
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

    /// Looks at every live key, each as it is at that moment, in no order.
    pub fn for_each(&self, mut look: impl FnMut(&KeyDigest, &Record)) {
        for number in 0..self.slots.end() {
            if let Some((key, record)) = self.at(SlotId(number)) {
                look(&key, &record);
            }
        }
    }
}

impl Shard {
    fn new() -> Self {
        let shard = Shard {
            version: AtomicU64::new(0),
            level: AtomicU8::new(0),
            number_bits: AtomicU8::new(FIRST_NUMBER_BITS),
            parts: std::array::from_fn(|_| OnceLock::new()),
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

    fn expect(&self, keys: usize) {
        let levels = 0..LEVELS as u8 - 1;
        let level = { levels }.take_while(|level| is_full(keys, FIRST_PART << level)).count() as u8;
        (0..=level).for_each(|level| self.make_part(level));
        self.change(|| self.level.store(level, Ordering::Relaxed));
    }

    #[inline]
    fn table(&self) -> Table<'_> {
        let level = self.level.load(Ordering::Relaxed);
        let number_bits = u32::from(self.number_bits.load(Ordering::Relaxed));
        Table { parts: &self.parts, mask: (FIRST_PART << level) - 1, number_bits }
    }

    fn make_part(&self, level: u8) {
        let len = FIRST_PART << level.saturating_sub(1);
        if let Some(part) = self.parts.get(usize::from(level)) {
            part.get_or_init(|| (0..len).map(|_| AtomicU32::new(0)).collect());
        }
    }

    #[inline]
    fn find<'a>(&self, slots: &'a Slots, words: &Words, hash: u64) -> Option<(u32, &'a Slot)> {
        self.place(self.table(), slots, words, hash).map(|(_, number, slot)| (number, slot))
    }

    /// The bucket that holds a key, and its slot. Bounded: a torn look ends too.
    #[inline]
    fn place<'a>(
        &self,
        table: Table<'_>,
        slots: &'a Slots,
        words: &Words,
        hash: u64,
    ) -> Option<(usize, u32, &'a Slot)> {
        let tag = tag_of((hash >> 32) as u32, table.number_bits);
        for step in 0..=table.mask {
            let place = (hash as usize).wrapping_add(step) & table.mask;
            let bucket = table.get(place)?;
            let number = table.number_in(bucket)?;
            if tag_of(bucket, table.number_bits) == tag
                && let Some(slot) = slots.get(number).filter(|slot| slot.has_key(words))
            {
                return Some((place, number, slot));
            }
        }
        None
    }

    /// Puts a key that is not there and its record into a slot.
    fn enter(&self, slots: &Slots, writer: &mut Writer, words: Words, hash: u64, record: &Record) -> u32 {
        let number = writer.free.pop().unwrap_or_else(|| slots.take());
        let slot = slots.make(number);
        writer.live += 1;
        let table = self.table();
        let full = is_full(writer.live as usize, table.mask + 1);
        if full || tag_of(number + 1, table.number_bits) != 0 {
            self.rebuild(slots, full, number);
        }
        self.change(|| {
            slot.set(words, record);
            self.table().enter(hash, number);
        });
        number
    }

    /// Enters every slot of the table anew, with the next part in use, or with room for a number.
    fn rebuild(&self, slots: &Slots, longer: bool, number: u32) {
        let old = self.table();
        // Read before readers have to wait: each slot is in no near cache.
        let used: Vec<_> =
            old.numbers().filter_map(|number| Some((number, hash_of(&slots.get(number)?.digest())))).collect();
        let level = self.level.load(Ordering::Relaxed) + u8::from(longer);
        let bits = (u32::BITS - (number + 1).leading_zeros()).max(old.number_bits) as u8;
        self.make_part(level);
        self.change(|| {
            self.level.store(level, Ordering::Relaxed);
            self.number_bits.store(bits, Ordering::Relaxed);
            let table = self.table();
            (0..=table.mask).for_each(|place| table.set(place, 0));
            used.iter().for_each(|(number, hash)| table.enter(*hash, *number));
        });
    }

    fn remove(&self, slots: &Slots, words: &Words, hash: u64) -> Option<(u32, Record)> {
        let mut writer = self.writer.lock();
        let table = self.table();
        let (place, number, slot) = self.place(table, slots, words, hash)?;
        let record = slot.record();
        self.change(|| {
            slot.free();
            close_gap(table, slots, place);
        });
        writer.live = writer.live.saturating_sub(1);
        writer.free.push(number);
        Some((number, record))
    }

    fn for_each(&self, slots: &Slots, mut look: impl FnMut(KeyDigest, Record)) {
        let _writer = self.writer.lock();
        for slot in self.table().numbers().filter_map(|number| slots.get(number)) {
            look(slot.digest(), slot.record());
        }
    }
}

/// A table is at most three quarters full.
fn is_full(keys: usize, buckets: usize) -> bool {
    keys.saturating_mul(4) > buckets * 3
}

/// Empties a bucket and moves those back that had gone past it.
fn close_gap(table: Table<'_>, slots: &Slots, mut gap: usize) {
    let mut next = gap;
    loop {
        next = next.wrapping_add(1) & table.mask;
        let bucket = table.get(next).unwrap_or(0);
        let Some(slot) = table.number_in(bucket).and_then(|number| slots.get(number)) else { break };
        let home = hash_of(&slot.digest()) as usize & table.mask;
        // It may move back where its home is not between the gap (excluded) and itself.
        if next.wrapping_sub(home) & table.mask >= next.wrapping_sub(gap) & table.mask {
            table.set(gap, bucket);
            gap = next;
        }
    }
    table.set(gap, 0);
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

    /// The slot's number in a bucket.
    #[inline]
    fn number_in(&self, bucket: u32) -> Option<u32> {
        (bucket ^ tag_of(bucket, self.number_bits)).checked_sub(1)
    }

    /// The number of every slot that is entered.
    fn numbers(self) -> impl Iterator<Item = u32> {
        (0..=self.mask).filter_map(move |place| self.number_in(self.get(place)?))
    }

    /// Puts a slot's number into the first empty bucket after its home.
    fn enter(&self, hash: u64, number: u32) {
        let places = (0..=self.mask).map(|step| (hash as usize).wrapping_add(step) & self.mask);
        if let Some(place) = { places }.find(|place| self.get(*place) == Some(0)) {
            self.set(place, (number + 1) | tag_of((hash >> 32) as u32, self.number_bits));
        }
    }
}

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
    fn room_for_keys_that_are_expected_is_no_limit() {
        for expected in [0, 1, 5000, 1_000_000] {
            let index = Index::new(0);
            index.expect(expected);
            (0..5000).for_each(|number| _ = index.put(&key(number), &record(number)));
            for number in 0..5000 {
                assert_eq!(index.get(&key(number)), Some(record(number)), "key {number} of {expected}");
                assert_eq!(index.get(&key(number + 5000)), None);
            }
        }
    }

    #[test]
    fn numbers_of_more_bits_take_them_from_the_tags() {
        let index = Index::new(0);
        let bits = || index.shards.iter().map(|shard| shard.number_bits.load(Ordering::Relaxed)).max();
        for number in 0..5000 {
            index.put(&key(number), &record(number));
        }
        assert!(bits() > Some(FIRST_NUMBER_BITS + 2), "{:?}", bits());
        for number in 0..5000 {
            assert_eq!(index.get(&key(number)), Some(record(number)), "key {number}");
            assert_eq!(index.get(&key(number + 5000)), None);
        }
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
