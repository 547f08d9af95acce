//! Who is compared with the peers: onceledger, or a stand-in until it compiles.

use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::contest::{Bench, Measure};
use crate::drive::{self, Clock};
use crate::peer::{AsyncPeer, Peer, Reader, Tally};
use crate::shelf::Kept;
use crate::work::{self, CHUNK, OUTCOME};

#[cfg(feature = "ours")]
pub use crate::ours::Ours as TheSubject;
#[cfg(not(feature = "ours"))]
pub use crate::standin::StandIn as TheSubject;

/// What only the subject is asked for.
pub trait Subject: AsyncPeer {
    /// Whether this is onceledger.
    const STANDS_IN: bool;
    /// Opens the store that `create` made in this directory.
    fn open(dir: &Path) -> Result<Self>;
    /// Closes it cleanly.
    fn close(self) -> Result<()>;
    /// A new, empty store with as small a page cache as works.
    fn create_lean(dir: &Path) -> Result<Self>;
    /// A new, empty store that forgets a key this long after its settle.
    fn create_keeping(dir: &Path, keep: Duration) -> Result<Self>;
    /// The key of raw JSON arguments: canonical form, then SHA-256.
    fn key_of_arguments(arguments: &str) -> Result<Self::Key>;
}

/// The subject's name.
pub fn name() -> &'static str {
    TheSubject::NAME
}

/// Argument texts (and ready keys) looked up in the rows from raw arguments.
const TEXTS: u64 = 64 * CHUNK as u64;

/// Look-ups from 200 bytes of raw JSON arguments by one reader; their claims are done.
pub fn checks_from_arguments<S: Subject, const DONE: u64>(bench: &mut Bench) -> Result<Measure> {
    let kept = bench.shelf.get::<S>(bench.options.scaled(DONE))?;
    let texts: Vec<String> = (0..TEXTS).map(work::arguments).collect();
    claim_texts(&kept, &texts)?;
    let window = bench.window();
    Ok(Box::new(move || {
        let mut reader = kept.store.reader()?;
        let chunks: Vec<&[String]> = texts.chunks_exact(CHUNK).collect();
        drive::rate(Clock::Wall, window, |round| {
            let mut tally = Tally::default();
            for text in chunks[round % chunks.len()] {
                tally.done += reader.check(&[S::key_of_arguments(text)?])?.done;
            }
            match tally.done {
                done if done == CHUNK as u64 => Ok(CHUNK),
                done => Err(format!("{done} of {CHUNK} argument texts were done").into()),
            }
        })
    }))
}

fn claim_texts<S: Subject>(kept: &Kept<S>, texts: &[String]) -> Result<()> {
    let keys = texts.iter().map(|text| S::key_of_arguments(text)).collect::<Result<Vec<_>>>()?;
    drive::each(&kept.store, &keys, |peer, key| async move {
        let grant = peer.claim_async(key).await?.granted()?;
        peer.settle_async(grant, OUTCOME).await
    })
}

/// Look-ups by ready keys by one reader, as many different ones as there are argument texts.
pub fn checks_by_ready_key<P: Peer, const DONE: u64>(bench: &mut Bench) -> Result<Measure> {
    let done = bench.options.scaled(DONE);
    let kept = bench.shelf.get::<P>(done)?;
    let keys: Vec<P::Key> = work::done_sample(done).take(TEXTS as usize).map(P::key).collect();
    let window = bench.window();
    Ok(Box::new(move || drive::checks(&kept.store, &keys, 1, CHUNK as u64, window, Clock::Wall)))
}
