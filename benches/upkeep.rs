//! Opening and sweeping.
#![allow(missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{filled, folder, options, pairs_by_futures};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn open(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open, closed in order");
    for claims in [100_000_u64, 1_000_000] {
        let folder = folder();
        let path = folder.path().join("ledger.redb");
        filled(&path, claims).close().unwrap();
        group.throughput(Throughput::Elements(claims));
        group.bench_function(BenchmarkId::new("claims", claims), |bencher| {
            bencher.iter_custom(|rounds| {
                let mut taken = Duration::ZERO;
                for _ in 0..rounds {
                    let start = Instant::now();
                    let ledger = options().open(&path).unwrap();
                    taken += start.elapsed();
                    ledger.close().unwrap();
                }
                taken
            });
        });
    }
    group.finish();
}

fn sweep(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sweep");
    const KEYS: u64 = 100_000;
    group.throughput(Throughput::Elements(KEYS));
    group.sample_size(10);
    group.bench_function("100,000 keys", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut taken = Duration::ZERO;
            for _ in 0..rounds {
                let folder = folder();
                let second = Duration::from_secs(1);
                let options = options().keep(second).remember(second).threads(false);
                // Filled by a ledger with threads, which futures need; swept by one without, by hand.
                let path = folder.path().join("ledger.redb");
                let filling = options.clone().threads(true).create(&path).unwrap();
                pairs_by_futures(&filling, 1024, 0..KEYS);
                filling.close().unwrap();
                let ledger = options.open(&path).unwrap();
                std::thread::sleep(2 * second);
                let start = Instant::now();
                while ledger.sweep(4096).unwrap().keys > 0 {}
                taken += start.elapsed();
                ledger.close().unwrap();
            }
            taken
        });
    });
    group.finish();
}

fn config() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(5))
}

criterion_group! { name = benches; config = config(); targets = open, sweep }
criterion_main!(benches);
