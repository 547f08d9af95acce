//! The anchor: a small file beside the ledger that says which ledger belongs there and how far it
//! had come (P12). It is written by rename, so that it is whole or old, never half; it may lag
//! behind the ledger, never lead it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::codec::{self, Anchor};
use crate::engine::files::{Disk, Mode, Node};
use crate::error::{Error, ErrorKind, Result};

/// The names that belong to one ledger, all made from its canonical path.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub file: PathBuf,
    pub folder: PathBuf,
    pub lock: PathBuf,
    pub anchor: PathBuf,
    pub sessions: PathBuf,
    /// Where a new ledger is made before it gets its name.
    pub creating: PathBuf,
    anchor_new: PathBuf,
}

impl Paths {
    pub fn new(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let file = disk.canonical(path).map_err(|error| Error::io("finding the folder of", path, error))?;
        let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
        let beside = |suffix: &str| {
            let mut name = file.file_name().unwrap_or_default().to_owned();
            name.push(suffix);
            folder.join(name)
        };
        Ok(Paths {
            lock: beside(".lock"),
            anchor: beside(".anchor"),
            anchor_new: beside(".anchor.new"),
            sessions: beside(".sessions"),
            creating: beside(".creating"),
            folder: folder.clone(),
            file,
        })
    }
}

/// The anchor file of one ledger.
#[derive(Clone, Debug)]
pub(crate) struct AnchorFile {
    disk: Arc<dyn Disk>,
    paths: Paths,
}

/// First bytes of the file, so that a person or `file` can tell what it is.
const MAGIC: &[u8; 16] = b"onceledgeranchor";

/// No anchor is longer.
const BYTES_MAX: u64 = 4096;

impl AnchorFile {
    pub fn new(disk: Arc<dyn Disk>, paths: Paths) -> Self {
        AnchorFile { disk, paths }
    }

    /// What the anchor says; `None` where there is none.
    pub fn read(&self) -> Result<Option<Anchor>> {
        let path = &self.paths.anchor;
        let failed = |error| Error::io("reading", path, error);
        let len = match self.disk.node(path).map_err(failed)? {
            None => return Ok(None),
            Some(Node::File(len)) if len <= BYTES_MAX => len,
            Some(_) => return Err(self.damaged("it is not a small file")),
        };
        let file = self.disk.open(path, Mode::Existing).map_err(failed)?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        file.read_at(0, &mut bytes).map_err(failed)?;
        let Some(sealed) = bytes.strip_prefix(MAGIC) else {
            return Err(self.damaged("it does not begin as an anchor does"));
        };
        match codec::open("the anchor", 0, sealed) {
            Err(error) if error.kind() != ErrorKind::NewerFormat => Err(self.damaged(&error.to_string())),
            other => other.map(Some),
        }
    }

    fn damaged(&self, what: &str) -> Error {
        Error::damaged(format!("the anchor {} is damaged: {what}", self.paths.anchor.display())).next(ADOPT)
    }

    /// Puts a new anchor in place of the old: write, sync, rename, directory sync.
    pub fn write(&self, anchor: &Anchor) -> Result<()> {
        let new = &self.paths.anchor_new;
        let failed = |error| Error::io("writing the anchor", new, error);
        let mut bytes = MAGIC.to_vec();
        codec::seal_into(&mut bytes, 0, anchor)?;
        let file = self.disk.open(new, Mode::OpenOrCreate).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        file.write_at(0, &bytes).map_err(failed)?;
        if !cfg!(onceledger_canary = "anchor_not_synced") {
            file.sync().map_err(failed)?;
        }
        self.disk.rename(new, &self.paths.anchor).map_err(failed)?;
        if cfg!(onceledger_canary = "no_directory_sync") {
            return Ok(());
        }
        self.disk.sync_dir(&self.paths.folder).map_err(failed)
    }
}

/// The way out where a file and its anchor do not belong together.
pub(crate) const ADOPT: &str = "if the file itself is the right one, take it over with `onceledger adopt --ledger FILE --by WHO --why WHY` \
     (claims that only a newer copy knew may then run again: check the outside first)";
