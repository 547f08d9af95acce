//! The names: what lookups see, what survives, and the changes no directory sync has made durable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(u64),
    Directory,
}

pub(super) type Tree = BTreeMap<PathBuf, Entry>;

/// One change, whole or not at all: a rename takes one name away and sets another.
#[derive(Clone, Debug)]
pub(super) struct NameOp(pub(super) Vec<(PathBuf, Option<Entry>)>);

impl NameOp {
    pub(super) fn apply(&self, tree: &mut Tree) {
        for (path, entry) in &self.0 {
            match entry {
                Some(entry) => tree.insert(path.clone(), *entry),
                None => tree.remove(path),
            };
        }
    }

    /// The directories whose contents it changes.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(|(path, _)| path.parent())
    }

    fn touches(&self, folders: &BTreeSet<&Path>) -> bool {
        self.folders().any(|folder| folders.contains(folder))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) seen: Tree,
    pub(super) durable: Tree,
    pub(super) pending: Vec<NameOp>,
}

impl Default for Names {
    fn default() -> Self {
        Names::quiet(Tree::from([(PathBuf::from("/"), Entry::Directory)]))
    }
}

impl Names {
    /// Names that are all durable. Names in directories that are not there are dropped.
    pub(super) fn quiet(tree: Tree) -> Self {
        let mut folders = BTreeSet::new();
        let mut whole = Tree::new();
        for (path, entry) in tree {
            if path.parent().is_some_and(|folder| !folders.contains(folder)) {
                continue;
            }
            if entry == Entry::Directory {
                folders.insert(path.clone());
            }
            whole.insert(path, entry);
        }
        Names { seen: whole.clone(), durable: whole, pending: Vec::new() }
    }

    pub(super) fn is_folder(&self, path: &Path) -> bool {
        self.seen.get(path) == Some(&Entry::Directory)
    }

    pub(super) fn change(&mut self, op: NameOp) {
        op.apply(&mut self.seen);
        self.pending.push(op);
    }

    /// Makes every change of this directory durable, and with it whatever came before it in any
    /// directory that such a change also touched.
    pub(super) fn sync(&mut self, folder: &Path) {
        let pending = std::mem::take(&mut self.pending);
        let mut needed: BTreeSet<&Path> = BTreeSet::from([folder]);
        let mut kept = vec![false; pending.len()];
        for (op, kept) in pending.iter().zip(&mut kept).rev() {
            if op.touches(&needed) {
                needed.extend(op.folders());
                *kept = true;
            }
        }
        drop(needed);
        for (op, kept) in pending.into_iter().zip(kept) {
            if kept {
                op.apply(&mut self.durable);
            } else {
                self.pending.push(op);
            }
        }
    }

    /// Every set of pending changes that can survive: within one directory, none without all the
    /// earlier ones. All of them first, none of them last; at most `max` sets.
    pub(super) fn survivors(&self, max: usize) -> Vec<Vec<bool>> {
        let mut sets = Vec::new();
        self.extend_survivors(&mut Vec::new(), &mut sets, max.max(2) - 1);
        let none = vec![false; self.pending.len()];
        if !sets.contains(&none) {
            sets.push(none);
        }
        sets
    }

    fn extend_survivors(&self, set: &mut Vec<bool>, sets: &mut Vec<Vec<bool>>, max: usize) {
        if sets.len() >= max {
            return;
        }
        let Some(next) = self.pending.get(set.len()) else {
            sets.push(set.clone());
            return;
        };
        let lost = self.pending.iter().zip(&*set).filter(|(_, kept)| !**kept);
        let closed: BTreeSet<&Path> = lost.flat_map(|(op, _)| op.folders()).collect();
        if !next.touches(&closed) {
            set.push(true);
            self.extend_survivors(set, sets, max);
            set.pop();
        }
        set.push(false);
        self.extend_survivors(set, sets, max);
        set.pop();
    }

    /// The names that survive when these pending changes do.
    pub(super) fn image(&self, kept: &[bool]) -> Names {
        let mut tree = self.durable.clone();
        for (op, _) in self.pending.iter().zip(kept).filter(|(_, kept)| **kept) {
            op.apply(&mut tree);
        }
        Names::quiet(tree)
    }

    /// The files some name leads to, now or in some surviving state.
    pub(super) fn files(&self) -> BTreeSet<u64> {
        let pending = self.pending.iter().flat_map(|op| op.0.iter().filter_map(|(_, entry)| entry.as_ref()));
        let entries = self.seen.values().chain(self.durable.values()).chain(pending);
        entries
            .filter_map(|entry| match entry {
                Entry::File(inode) => Some(*inode),
                Entry::Directory => None,
            })
            .collect()
    }
}
