//! How long opening takes, after a close in order and after a kill in the middle of work.
//!
//!     cargo run --release --example open_time -- FOLDER fill 1000000
//!     cargo run --release --example open_time -- FOLDER open            (or `open alone`: on one thread)
//!     cargo run --release --example open_time -- FOLDER kill
//!     cargo run --release --example open_time -- FOLDER open

use std::path::Path;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use onceledger::{Claim, Key, Ledger, Options, Result, Scope, Settlement};

fn open(path: &Path) -> Result<Ledger> {
    Options::new().threads(false).open_or_create(path)
}

/// Polls futures on a ledger without threads until all are ready.
fn run<F: Future>(ledger: &Ledger, futures: Vec<F>) -> Vec<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    loop {
        for (future, output) in futures.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(&mut context) {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) {
            return outputs.into_iter().flatten().collect();
        }
        ledger.tick();
    }
}

/// Claims and completes so many actions, in batches.
fn work(ledger: &Ledger, from: u64, count: u64, batch: u64) -> Result<()> {
    let scope = Scope::new("bench/open")?;
    let mut at = from;
    while at < from + count {
        let end = (at + batch).min(from + count);
        let claims = (at..end).map(|number| Ok(Claim::unguarded(Key::action(&scope, "act", [number.to_le_bytes()])?)));
        let claims = claims.collect::<Result<Vec<_>>>()?;
        let granted = run(ledger, claims.iter().map(|claim| ledger.claim_async(claim)).collect());
        let grants = granted.into_iter().filter_map(|claimed| claimed.ok()?.granted());
        let settling =
            grants.map(|grant| grant.settle_async(Settlement::done("refunded 79 EUR, reference 1234567890")));
        run(ledger, settling.collect()).into_iter().try_for_each(|settled| settled.map(drop))?;
        at = end;
    }
    Ok(())
}

/// Processor time of this process, in seconds: what opening costs on a machine that does other things too.
#[cfg(unix)]
fn processor() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(not(unix))]
fn processor() -> f64 {
    0.0
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, what, more @ ..] = args.as_slice() else {
        eprintln!("usage: open_time FOLDER fill CLAIMS | open [alone] | kill");
        std::process::exit(2);
    };
    let path = Path::new(folder).join("open_time.redb");
    match what.as_str() {
        "fill" => {
            let ledger = open(&path)?;
            work(&ledger, 0, more.first().and_then(|count| count.parse().ok()).unwrap_or(1_000_000), 4096)?;
            ledger.close()?;
        }
        "kill" => {
            let ledger = open(&path)?;
            let from = ledger.stats()?.done;
            work(&ledger, from, 2_000, 100)?;
            work(&ledger, from + 2_000, 20, 1)?;
            // As a kill: nothing is dropped, nothing closed.
            std::process::abort();
        }
        _ => {
            let options = Options::new().threads(more.first().is_none_or(|word| word != "alone"));
            let (began, spent) = (Instant::now(), processor());
            let ledger = options.open(&path)?;
            let (seconds, processor) = (began.elapsed().as_secs_f64(), processor() - spent);
            let stats = ledger.stats()?;
            println!(
                "{} claims, {} rows, {} MiB: {seconds:.2} s, {processor:.2} s of processor",
                stats.done,
                stats.rows,
                stats.file_bytes >> 20
            );
            ledger.close()?;
        }
    }
    Ok(())
}
