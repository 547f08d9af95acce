//! A claim check by standing, alone and while a writer runs; keys from arguments.
#![allow(missing_docs)]

mod common;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{filled, folder, fresh, key, options, pair};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use onceledger::canonical::Value;
use onceledger::{Claim, Key, Ledger, Scope, Selection, View};

const KEYS: u64 = 100_000;

/// Spreads an iteration over the keys.
fn pick(keys: &[Key], step: u64) -> &Key {
    &keys[(step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize % keys.len()]
}

fn by_standing(criterion: &mut Criterion) {
    let folder = folder();
    let ledger = filled(&folder.path().join("ledger.redb"), KEYS);
    let uncached = options().cache_bytes(0).create(folder.path().join("uncached.redb")).unwrap();
    common::pairs_by_futures(&uncached, 1024, 0..KEYS / 10);
    let held: Vec<_> =
        (0..1000).map(|_| ledger.claim(&Claim::unguarded(key(fresh()))).unwrap().granted().unwrap()).collect();

    let done: Vec<Key> = (0..KEYS).map(key).collect();
    let on_disk: Vec<Key> = (0..KEYS / 10).map(key).collect();
    let in_progress: Vec<Key> = held.iter().map(|grant| grant.key().clone()).collect();
    let vacant: Vec<Key> = (0..KEYS).map(|_| key(fresh())).collect();
    let rows: [(&str, &Ledger, &[Key]); 4] = [
        ("done, outcome in memory", &ledger, &done),
        ("done, outcome on disk", &uncached, &on_disk),
        ("in progress", &ledger, &in_progress),
        ("vacant", &ledger, &vacant),
    ];
    let mut group = criterion.benchmark_group("check");
    group.throughput(Throughput::Elements(1));
    for (name, ledger, keys) in rows {
        let mut step = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                step += 1;
                black_box(ledger.check(pick(keys, step)).unwrap())
            });
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("check while a writer runs");
    for readers in [1, 2, 4, 8] {
        group.throughput(Throughput::Elements(readers));
        group.bench_function(BenchmarkId::new("readers", readers), |bencher| {
            bencher.iter_custom(|rounds| while_writing(&ledger, &done, readers, rounds));
        });
    }
    group.finish();
    drop(held);
}

/// The time that `readers` threads take for `rounds` checks each, beside one writer.
fn while_writing(ledger: &Ledger, keys: &[Key], readers: u64, rounds: u64) -> Duration {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                pair(ledger, fresh());
            }
        });
        let start = Instant::now();
        let readers: Vec<_> = (0..readers)
            .map(|reader| {
                scope.spawn(move || {
                    for step in 0..rounds {
                        black_box(ledger.check(pick(keys, step ^ reader << 40)).unwrap().standing());
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().unwrap();
        }
        let taken = start.elapsed();
        done.store(true, Ordering::Relaxed);
        taken
    })
}

fn replay(criterion: &mut Criterion) {
    let ledger = Ledger::in_memory().unwrap();
    let claim = Claim::unguarded(key(1));
    let kilobyte = "x".repeat(1024);
    let _ = ledger.once(&claim, |_| Ok::<_, onceledger::EffectError>(kilobyte)).unwrap();
    criterion.bench_function("replay of a 1-KiB outcome", |bencher| {
        bencher.iter(|| {
            let answer =
                ledger.once(&claim, |_| -> Result<String, _> { Err(onceledger::EffectError::unknown("ran twice")) });
            black_box(answer.unwrap())
        });
    });
}

fn keys(criterion: &mut Criterion) {
    let ledger = Ledger::in_memory().unwrap();
    let scope = Scope::new("bench").unwrap();
    let short = format!(
        r#"{{"order_id":"ord_0123456789","amount":79.5,"currency":"EUR","note":"{}","lines":[1,2,3]}}"#,
        "a".repeat(106)
    );
    let long = format!(
        r#"{{"order_id":"ord_0123456789","body":{:?},"tags":["a","b"],"n":12345678901234567890}}"#,
        "b".repeat(4000)
    );
    let mut group = criterion.benchmark_group("key from arguments");
    for (name, text) in [("200 bytes", &short), ("4 KiB", &long)] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let none: [&str; 0] = [];
                let value = Value::parse(black_box(text)).unwrap();
                let selection = Selection::tool(&value, &none, &none).unwrap();
                let view = ledger.check(&Key::tool(&scope, "refund", &selection).unwrap()).unwrap();
                assert_eq!(view, View::Vacant);
            });
        });
    }
    group.finish();
}

fn config() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! { name = benches; config = config(); targets = by_standing, replay, keys }
criterion_main!(benches);
