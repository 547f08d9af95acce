//! Durable work: claim and settle by one and by many, transactions, duplicates of one key.
#![allow(missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{folder, fresh, key, options, pairs_by_futures, pairs_by_threads};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use onceledger::{Answer, Claim, EffectError, Transacted};

fn claim_and_settle(criterion: &mut Criterion) {
    let folder = folder();
    let ledger = options().create(folder.path().join("ledger.redb")).unwrap();
    let mut group = criterion.benchmark_group("claim and settle");
    for threads in [1, 16, 128] {
        group.throughput(Throughput::Elements(threads));
        group.bench_function(BenchmarkId::new("threads", threads), |bencher| {
            bencher.iter_custom(|rounds| {
                let start = Instant::now();
                pairs_by_threads(&ledger, threads, rounds);
                start.elapsed()
            });
        });
    }
    group.throughput(Throughput::Elements(1024));
    group.bench_function(BenchmarkId::new("futures", 1024), |bencher| {
        bencher.iter_custom(|rounds| {
            let first = fresh() + (1 << 50);
            let start = Instant::now();
            pairs_by_futures(&ledger, 1024, first..first + rounds * 1024);
            let taken = start.elapsed();
            // The next range begins behind this one.
            (0..rounds * 1024).for_each(|_| _ = fresh());
            taken
        });
    });
    group.finish();
}

/// Flat cost: the same work beside a thousand live keys and beside two million.
fn by_live_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("claim and settle, 1,024 futures, by live keys");
    for live in [1_000, 2_000_000_u64] {
        let folder = folder();
        let ledger = common::filled(&folder.path().join("ledger.redb"), live);
        let mut first = 1 << 52;
        group.throughput(Throughput::Elements(1024));
        group.bench_function(BenchmarkId::new("live keys", live), |bencher| {
            bencher.iter_custom(|rounds| {
                let start = Instant::now();
                pairs_by_futures(&ledger, 1024, first..first + rounds * 1024);
                first += rounds * 1024;
                start.elapsed()
            });
        });
    }
    group.finish();
}

fn transactions(criterion: &mut Criterion) {
    let folder = folder();
    let ledger = options().create(folder.path().join("ledger.redb")).unwrap();
    let mut group = criterion.benchmark_group("transaction");
    for keys in [1, 4, 16] {
        group.throughput(Throughput::Elements(keys));
        group.bench_function(BenchmarkId::new("keys", keys), |bencher| {
            bencher.iter(|| {
                let claims = (0..keys).map(|_| Claim::unguarded(key(fresh())));
                let transaction = claims.fold(ledger.transaction(), |transaction, claim| transaction.claim(claim));
                let Transacted::Committed(committed) = transaction.commit().unwrap() else { panic!("refused") };
                // Tickets: a bench measures the commit, not how a thousand grants end.
                committed.grants.into_iter().for_each(|grant| drop(grant.into_ticket()));
            });
        });
    }
    group.finish();
}

fn duplicates(criterion: &mut Criterion) {
    let folder = folder();
    let ledger = options().create(folder.path().join("ledger.redb")).unwrap();
    criterion.bench_function("100 claimers of one key", |bencher| {
        bencher.iter(|| {
            let claim = Claim::unguarded(key(fresh())).wait(Duration::from_secs(30));
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(|| {
                        let answer = ledger.once(&claim, |_| Ok::<_, EffectError>("done")).unwrap();
                        assert!(matches!(answer, Answer::Done(_) | Answer::AlreadyDone(_)));
                    });
                }
            });
        });
    });
}

fn config() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
}

criterion_group! { name = benches; config = config(); targets = claim_and_settle, by_live_keys, transactions, duplicates }
criterion_main!(benches);
