//! The state of every live key, in memory: what a check reads and a decision is made on.
//!
//! 1,024 shards by the first bits of the key, each with its own lock, its own small hash table of
//! slot numbers and its slots in chunks that never move. A table grows by itself and alone, so that
//! no growth stops a writer for long; a lock is held for one look-up or one change, never across a
//! sync. Nothing here is ever evicted but outcome bodies: no cache decides a grant.

use std::mem::size_of;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

use crate::engine::state::Record;
use crate::engine::sync::RwLock;
use crate::outcome::Outcome;

/// A key's digest.
pub(crate) type KeyDigest = [u8; 32];

// Schedules are explored on few shards: the locks are what matters there.
const SHARD_BITS: u32 = if cfg!(onceledger_shuttle) { 2 } else { 10 };
const SHARDS: usize = 1 << SHARD_BITS;
const CHUNK: usize = 32;

/// The whole index.
pub(crate) struct Index {
    shards: Box<[CachePadded<RwLock<Shard>>]>,
}

#[derive(Default)]
struct Shard {
    /// Slot numbers by the key's hash.
    table: HashTable<u32>,
    chunks: Vec<Box<[Slot; CHUNK]>>,
    free: Vec<u32>,
}

struct Slot {
    key: KeyDigest,
    record: Record,
    /// The outcome's body, where it is cached.
    body: Option<Outcome>,
}

/// A live claim must fit into 160 bytes with its share of table and due queue.
const _: () = assert!(size_of::<Slot>() <= 136);

/// Names a slot across shards: which shard, which slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotId(u32);

const SLOT_BITS: u32 = 32 - SHARD_BITS;

fn shard_of(key: &KeyDigest) -> usize {
    usize::from(u16::from_be_bytes([key[0], key[1]]) >> (16 - SHARD_BITS))
}

/// Keys are SHA-256 digests: bytes that the shard does not use are as good as any hash.
fn hash_of(key: &KeyDigest) -> u64 {
    let [_, _, a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl Index {
    pub fn new() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::new(RwLock::new(Shard::default())));
        Index { shards: shards.collect() }
    }

    fn shard(&self, key: &KeyDigest) -> &RwLock<Shard> {
        // In range: `shard_of` gives SHARD_BITS bits, and there are 2^SHARD_BITS shards.
        &self.shards[shard_of(key)]
    }

    /// The record of a key.
    pub fn get(&self, key: &KeyDigest) -> Option<Record> {
        self.read(key, |record, _| *record)
    }

    /// Looks at a key's record and its cached body under the shard's shared lock.
    pub fn read<T>(&self, key: &KeyDigest, look: impl FnOnce(&Record, Option<&Outcome>) -> T) -> Option<T> {
        let shard = self.shard(key).read();
        let slot = shard.find(key)?;
        Some(look(&slot.record, slot.body.as_ref()))
    }

    /// Puts a key's record in place, with its body where one is to be cached.
    pub fn put(&self, key: &KeyDigest, record: Record, body: Option<Outcome>) -> SlotId {
        let number = shard_of(key);
        self.shard(key).write().put(number, key, record, body)
    }

    /// Changes a record in place, where the key is there. For marks in memory only.
    pub fn update(&self, key: &KeyDigest, change: impl FnOnce(&mut Record)) -> bool {
        let mut shard = self.shard(key).write();
        let slot = shard.find_mut(key);
        slot.map(|slot| change(&mut slot.record)).is_some()
    }

    /// Caches a body beside a record that still has it. False where it does not.
    pub fn cache(&self, key: &KeyDigest, row: u64, body: Option<Outcome>) -> bool {
        let mut shard = self.shard(key).write();
        match shard.find_mut(key) {
            Some(slot) if slot.record.link == row => {
                slot.body = body;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Forgets a key.
    pub fn remove(&self, key: &KeyDigest) -> Option<Record> {
        self.shard(key).write().remove(key)
    }

    /// The key and record in a slot, where it is in use.
    pub fn at(&self, id: SlotId) -> Option<(KeyDigest, Record)> {
        let shard = self.shards.get((id.0 >> SLOT_BITS) as usize)?.read();
        let slot = shard.slot(id.0 & (u32::MAX >> SHARD_BITS))?;
        // A freed slot keeps its old key; the table says whether it is in use.
        let used = shard.find(&slot.key).is_some_and(|found| std::ptr::eq(found, slot));
        used.then_some((slot.key, slot.record))
    }

    /// The key and record of every live key, shard by shard in ascending order of key, from the
    /// first key after `after`. `take` says whether to go on.
    pub fn walk(&self, after: Option<&KeyDigest>, mut take: impl FnMut(KeyDigest, Record) -> bool) {
        let first = after.map_or(0, shard_of);
        for shard in self.shards.iter().skip(first) {
            let mut page: Vec<(KeyDigest, Record)> = {
                let shard = shard.read();
                let slots = shard.table.iter().filter_map(|number| shard.slot(*number));
                slots
                    .filter(|slot| after.is_none_or(|after| slot.key > *after))
                    .map(|slot| (slot.key, slot.record))
                    .collect()
            };
            page.sort_unstable_by_key(|(key, _)| *key);
            for (key, record) in page {
                if !take(key, record) {
                    return;
                }
            }
        }
    }

    /// Looks at every live key, in no order.
    pub fn for_each(&self, mut look: impl FnMut(&KeyDigest, &Record)) {
        for shard in &self.shards {
            let shard = shard.read();
            for slot in shard.table.iter().filter_map(|number| shard.slot(*number)) {
                look(&slot.key, &slot.record);
            }
        }
    }

    /// How many keys are live.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().table.len() as u64).sum()
    }
}

impl Shard {
    fn slot(&self, number: u32) -> Option<&Slot> {
        self.chunks.get(number as usize / CHUNK).map(|chunk| &chunk[number as usize % CHUNK])
    }

    fn number(&self, key: &KeyDigest) -> Option<u32> {
        let same = |number: &u32| self.slot(*number).is_some_and(|slot| slot.key == *key);
        self.table.find(hash_of(key), same).copied()
    }

    fn find(&self, key: &KeyDigest) -> Option<&Slot> {
        self.slot(self.number(key)?)
    }

    fn find_mut(&mut self, key: &KeyDigest) -> Option<&mut Slot> {
        let number = self.number(key)? as usize;
        self.chunks.get_mut(number / CHUNK).map(|chunk| &mut chunk[number % CHUNK])
    }

    fn put(&mut self, shard: usize, key: &KeyDigest, record: Record, body: Option<Outcome>) -> SlotId {
        let slot = Slot { key: *key, record, body };
        let number = match self.number(key) {
            Some(number) => number,
            None => self.free.pop().unwrap_or_else(|| self.grow(&slot)),
        };
        if let Some(chunk) = self.chunks.get_mut(number as usize / CHUNK) {
            chunk[number as usize % CHUNK] = slot;
        }
        if self.number(key).is_none() {
            let chunks = &self.chunks;
            let rehash = |number: &u32| hash_of(&chunks[*number as usize / CHUNK][*number as usize % CHUNK].key);
            self.table.insert_unique(hash_of(key), number, rehash);
        }
        SlotId((shard as u32) << SLOT_BITS | number)
    }

    /// Adds a chunk, gives all of its slots but the first to the free list, and returns the first.
    fn grow(&mut self, like: &Slot) -> u32 {
        let first = (self.chunks.len() * CHUNK) as u32;
        let empty = || Slot { key: like.key, record: like.record, body: None };
        self.chunks.push(Box::new(std::array::from_fn(|_| empty())));
        self.free.extend((first + 1..first + CHUNK as u32).rev());
        first
    }

    fn remove(&mut self, key: &KeyDigest) -> Option<Record> {
        let number = self.number(key)?;
        let entry = self.table.find_entry(hash_of(key), |other| *other == number).ok()?;
        entry.remove();
        self.free.push(number);
        let slot = self.chunks.get_mut(number as usize / CHUNK).map(|chunk| &mut chunk[number as usize % CHUNK])?;
        slot.body = None;
        Some(slot.record)
    }
}
