//! Filled stores, made once and used by several rows.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::Result;
use crate::peer::Peer;

/// Stores by kind and number of done claims.
pub struct Shelf {
    root: PathBuf,
    stores: HashMap<(TypeId, u64), Arc<dyn Any + Send + Sync>>,
}

/// A store and its directory, which goes when the store went.
pub struct Kept<P> {
    /// The store. Declared, and so dropped, before the directory.
    pub store: P,
    _dir: TempDir,
}

impl Shelf {
    /// An empty shelf that makes directories under `root`.
    pub fn new(root: &Path) -> Self {
        Shelf { root: root.to_owned(), stores: HashMap::new() }
    }

    /// The store with `done` claims done, made now if there is none yet.
    pub fn get<P: Peer>(&mut self, done: u64) -> Result<Arc<Kept<P>>> {
        let slot = (TypeId::of::<P>(), done);
        if let Some(kept) = self.stores.get(&slot) {
            return Arc::clone(kept).downcast().map_err(|_| "a store of another kind".into());
        }
        eprintln!("  filling {} with {done} done claims", P::NAME);
        let kept = Arc::new(fresh::<P>(&self.root, done)?);
        self.stores.insert(slot, Arc::clone(&kept) as Arc<dyn Any + Send + Sync>);
        Ok(kept)
    }

    /// Drops every store that no row holds.
    pub fn clear(&mut self) {
        self.stores.clear();
    }
}

/// A store of its own, not kept on any shelf.
pub fn fresh<P: Peer>(root: &Path, done: u64) -> Result<Kept<P>> {
    let dir = tempfile::Builder::new().prefix("peer-").tempdir_in(root)?;
    Ok(Kept { store: P::create(dir.path(), done)?, _dir: dir })
}
