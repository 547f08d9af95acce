//! The states a power loss can leave.

use std::collections::BTreeMap;
use std::fmt;

use super::FaultDisk;
use super::inode::{FileOp, Inode};
use super::names::Names;
use super::state::State;
use crate::testkit::SplitMix;

/// Bytes that a disk writes whole or not at all.
const SECTOR: u64 = 512;

/// Which states to try. All limits are counts.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// For all that is sampled. Default 0.
    pub seed: u64,
    /// Up to so many pending writes and lengths, every subset of them is tried; at most 20.
    /// Default 12.
    pub subsets_max: usize,
    /// Above that: this many random subsets. Default 256.
    pub random: usize,
    /// Above that: at most this many subsets that lack exactly two. Default 2,048, sampled where
    /// there are more.
    pub pairs_max: usize,
    /// For each pending write of more than one sector, at most this many ways to tear it; 0 tears
    /// nothing. Default 64, sampled where there are more.
    pub tears_max: usize,
    /// At most this many sets of surviving names. Default 64.
    pub names_max: usize,
}

impl Default for CrashOptions {
    fn default() -> Self {
        CrashOptions { seed: 0, subsets_max: 12, random: 256, pairs_max: 2048, tears_max: 64, names_max: 64 }
    }
}

/// Which pending operations of files survive, by their place in the list of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Subset(u32),
    First(usize),
    Only(usize),
    Without(usize, usize),
    Random(u64),
}

impl Kept {
    fn list(self, count: usize) -> Vec<bool> {
        let all = 0..count;
        match self {
            Kept::Subset(mask) => all.map(|index| mask >> index & 1 == 1).collect(),
            Kept::First(end) => all.map(|index| index < end).collect(),
            Kept::Only(one) => all.map(|index| index == one).collect(),
            Kept::Without(one, other) => all.map(|index| index != one && index != other).collect(),
            Kept::Random(seed) => {
                let mut random = SplitMix::new(seed);
                all.map(|_| random.coin()).collect()
            }
        }
    }
}

/// Which sectors of a torn write survive, of those it covers.
#[derive(Clone, Copy, Debug)]
enum Tear {
    /// So many from the front.
    Head(u64),
    /// All after so many.
    Tail(u64),
    /// All but this one.
    Hole(u64),
}

impl Tear {
    /// Every way to tear a write of so many sectors, each once.
    fn all(sectors: u64) -> impl Iterator<Item = Tear> {
        let heads = (1..sectors).map(Tear::Head);
        let tails = (1..sectors).map(Tear::Tail);
        // A hole at either end is a tail or a head.
        let holes = (1..sectors.saturating_sub(1)).map(Tear::Hole);
        heads.chain(tails).chain(holes)
    }

    fn survives(self, sector: u64) -> bool {
        match self {
            Tear::Head(count) => sector < count,
            Tear::Tail(lost) => sector >= lost,
            Tear::Hole(lost) => sector != lost,
        }
    }
}

/// How many sectors an operation covers; a length covers none.
fn sectors(op: &FileOp) -> u64 {
    match op {
        FileOp::Write { offset, data } => (offset + data.len() as u64).div_ceil(SECTOR) - offset / SECTOR,
        FileOp::SetLen(_) => 0,
    }
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    names: usize,
    kept: Kept,
    torn: Option<(usize, Tear)>,
}

/// The states a power loss can leave, each a disk of its own with nothing pending and no locks.
///
/// All pending writes and lengths of all files together are *n*. Up to
/// [`subsets_max`](CrashOptions::subsets_max) every one of the 2^n subsets is produced, for every
/// set of surviving names. Above that, for every set of names: all prefixes, single drops, single
/// survivors, pairs of drops and random subsets. Then, with all names kept, every write is torn at
/// sectors of 512 bytes (a head, a tail, or all but one), with all the others kept, with only the
/// earlier ones, and with none. [`origin`](FaultDisk::origin) says which state it is.
pub struct CrashImages {
    base: State,
    /// The file and the place in its list of each pending operation.
    ops: Vec<(u64, usize)>,
    names: Vec<Vec<bool>>,
    choices: Vec<Choice>,
    next: usize,
}

impl fmt::Debug for CrashImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashImages")
            .field("origin", &self.base.origin)
            .field("left", &self.len())
            .finish_non_exhaustive()
    }
}

impl CrashImages {
    pub(super) fn new(base: State, options: &CrashOptions) -> Self {
        let ops: Vec<(u64, usize)> = base
            .inodes
            .iter()
            .flat_map(|(number, inode)| (0..inode.pending.len()).map(|index| (*number, index)))
            .collect();
        let names = base.names.survivors(options.names_max);
        let mut images = CrashImages { base, ops, names, choices: Vec::new(), next: 0 };
        let mut random = SplitMix::new(options.seed);
        for kept in images.subsets(options, &mut random) {
            let choice = |names| Choice { names, kept, torn: None };
            images.choices.extend((0..images.names.len()).map(choice));
        }
        images.add_torn(options, &mut random);
        images
    }

    fn subsets(&self, options: &CrashOptions, random: &mut SplitMix) -> Vec<Kept> {
        let count = self.ops.len();
        if count <= options.subsets_max.min(20) {
            return (0..1 << count).map(Kept::Subset).collect();
        }
        let mut subsets: Vec<Kept> = (0..=count).map(Kept::First).collect();
        // Without the last one is a prefix, only the first one too.
        subsets.extend((0..count - 1).map(|one| Kept::Without(one, one)));
        subsets.extend((1..count).map(Kept::Only));
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |two| (one, two)));
        let pairs = sample(pairs.collect(), options.pairs_max, random);
        subsets.extend(pairs.into_iter().map(|(one, two)| Kept::Without(one, two)));
        subsets.extend((0..options.random).map(|_| Kept::Random(random.next_u64())));
        subsets
    }

    fn add_torn(&mut self, options: &CrashOptions, random: &mut SplitMix) {
        let count = self.ops.len();
        for torn in 0..count {
            let sectors = self.op(torn).map_or(0, sectors);
            let tears = sample(Tear::all(sectors).collect(), options.tears_max, random);
            let mut others = vec![Kept::First(count)];
            if torn + 1 < count {
                others.push(Kept::First(torn + 1));
            }
            if torn > 0 {
                others.push(Kept::Only(torn));
            }
            for kept in others {
                let choice = |tear| Choice { names: 0, kept, torn: Some((torn, tear)) };
                self.choices.extend(tears.iter().copied().map(choice));
            }
        }
    }

    fn op(&self, index: usize) -> Option<&FileOp> {
        let (number, place) = self.ops.get(index)?;
        self.base.inodes.get(number)?.pending.get(*place)
    }

    fn image(&self, choice: Choice, salt: u64) -> FaultDisk {
        let kept = choice.kept.list(self.ops.len());
        let mut pages: BTreeMap<u64, _> =
            self.base.inodes.iter().map(|(number, inode)| (*number, inode.durable.clone())).collect();
        for (index, ((number, _), _)) in self.ops.iter().zip(&kept).enumerate().filter(|(_, (_, kept))| **kept) {
            let (Some(op), Some(file)) = (self.op(index), pages.get_mut(number)) else { continue };
            match choice.torn {
                Some((torn, tear)) if torn == index => apply_torn(op, tear, file),
                _ => op.apply(file),
            }
        }
        let inodes = pages.into_iter().map(|(number, pages)| (number, Inode::quiet(pages))).collect();
        let name_set = self.names.get(choice.names).map_or(&[][..], Vec::as_slice);
        let origin = format!("{}: {}", self.base.origin, describe(&kept, name_set, choice.torn));
        FaultDisk::from_state(self.base.child(inodes, self.base.names.image(name_set), salt, origin))
    }
}

impl Iterator for CrashImages {
    type Item = FaultDisk;

    fn next(&mut self) -> Option<FaultDisk> {
        let choice = *self.choices.get(self.next)?;
        self.next += 1;
        Some(self.image(choice, self.next as u64))
    }

    /// Skipping builds no image, so `step_by` and `nth` sample cheaply.
    fn nth(&mut self, skip: usize) -> Option<FaultDisk> {
        self.next = self.next.saturating_add(skip);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.choices.len().saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for CrashImages {}

impl State {
    /// What survives when nothing pending does.
    pub(super) fn power_loss(&self) -> FaultDisk {
        let quiet = |(number, inode): (&u64, &Inode)| (*number, Inode::quiet(inode.durable.clone()));
        let inodes = self.inodes.iter().map(quiet).collect();
        let names = Names::quiet(self.names.durable.clone());
        let origin = format!("power loss after operation {}", self.control.operations());
        FaultDisk::from_state(self.child(inodes, names, 0, origin))
    }
}

fn apply_torn(op: &FileOp, tear: Tear, pages: &mut super::pages::Pages) {
    let FileOp::Write { offset, data } = op else { return };
    let (mut at, mut rest, mut sector): (u64, &[u8], u64) = (*offset, data, 0);
    while !rest.is_empty() {
        let room = (SECTOR - at % SECTOR) as usize;
        let (now, later) = rest.split_at(room.min(rest.len()));
        if tear.survives(sector) {
            pages.write(at, now);
        }
        at += now.len() as u64;
        rest = later;
        sector += 1;
    }
}

/// Takes at most `max` of them, in order, which ones by the random numbers.
fn sample<T>(all: Vec<T>, max: usize, random: &mut SplitMix) -> Vec<T> {
    let (mut left, mut wanted) = (all.len() as u64, max as u64);
    if left <= wanted {
        return all;
    }
    let mut taken = Vec::with_capacity(max);
    for item in all {
        if random.below(left) < wanted {
            taken.push(item);
            wanted -= 1;
        }
        left -= 1;
    }
    taken
}

fn describe(kept: &[bool], names: &[bool], torn: Option<(usize, Tear)>) -> String {
    let bits = |list: &[bool]| -> String { list.iter().map(|kept| if *kept { '1' } else { '0' }).collect() };
    let torn = torn.map_or(String::new(), |(write, tear)| match tear {
        Tear::Head(count) => format!(", write {write} has its first {count} sectors"),
        Tear::Tail(lost) => format!(", write {write} lacks its first {lost} sectors"),
        Tear::Hole(lost) => format!(", write {write} lacks its sector {lost}"),
    });
    format!("writes [{}] names [{}]{torn}", bits(kept), bits(names))
}
