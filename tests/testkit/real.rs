//! With no faults planned, the faulty disk and the one in memory answer as the real one does.

use std::io;
use std::path::Path;
use std::sync::Arc;

use onceledger::testkit::{Disk, DiskFile, FaultDisk, LockKind, MemoryDisk, Mode, RealDisk, SplitMix};

/// One seeded call; what it answered, in words.
fn step(disk: &dyn Disk, folder: &Path, files: &mut Vec<Arc<dyn DiskFile>>, random: &mut SplitMix) -> String {
    let name = |random: &mut SplitMix| folder.join(format!("f{}", random.below(4)));
    let kind = |result: io::Result<String>| result.unwrap_or_else(|e| format!("{:?}", e.kind()));
    let (path, other) = (name(random), name(random));
    let (choice, offset, len) = (random.below(16), random.below(9000), random.below(6000));
    let len = if random.below(8) == 0 { 0 } else { len };
    let lock = if random.coin() { LockKind::Shared } else { LockKind::Exclusive };
    let mode = [Mode::Existing, Mode::CreateNew, Mode::OpenOrCreate][random.below(3) as usize];
    let which = random.below(files.len().max(1) as u64) as usize;
    let byte = random.next_u64() as u8;
    let answer = match (choice, files.get(which)) {
        (0, Some(_)) => {
            files.swap_remove(which);
            Ok(String::new())
        }
        (1, Some(file)) => file.len().map(|len| len.to_string()),
        (2 | 3, Some(file)) => {
            let mut out = vec![0; len as usize];
            file.read_at(offset, &mut out).map(|()| format!("{out:?}"))
        }
        (4..=6, Some(file)) => file.write_at(offset, &vec![byte; len as usize]).map(|()| String::new()),
        (7, Some(file)) => file.set_len(offset).map(|()| String::new()),
        (8, Some(file)) => file.sync().map(|()| String::new()),
        (9, Some(file)) => file.try_lock(lock).map(|taken| taken.to_string()),
        (10, Some(file)) => file.unlock().map(|()| String::new()),
        (11, _) => disk.link(&path, &other).map(|()| String::new()),
        (12, _) => disk.rename(&path, &other).map(|()| String::new()),
        (13, _) => disk.remove(&path).map(|()| String::new()),
        (14, _) => disk.node(&path).map(|node| format!("{node:?}")),
        (15, _) => disk.list(folder).map(|names| format!("{names:?}")),
        _ => disk.open(&path, mode).map(|file| {
            files.push(file);
            String::new()
        }),
    };
    format!("{choice} {}", kind(answer))
}

#[track_caller]
fn check(disk: impl Disk, folder: &Path, seed: u64) -> usize {
    let mut random = SplitMix::new(seed);
    let mut other_random = random.clone();
    let (mut real_files, mut files) = (Vec::new(), Vec::new());
    for call in 0..200 {
        let real = step(&RealDisk, folder, &mut real_files, &mut random);
        let answer = step(&disk, folder, &mut files, &mut other_random);
        assert_eq!(answer, real, "seed {seed}, call {call}");
    }
    200
}

#[test]
fn without_faults_every_call_answers_as_on_the_real_disk() {
    let mut calls = 0;
    for seed in 0..100 {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new(seed);
        for path in folder.path().ancestors().collect::<Vec<_>>().into_iter().rev() {
            disk.create_dir(path).unwrap();
        }
        calls += check(disk, folder.path(), seed);
    }
    println!("{calls} calls compared");
    assert!(calls >= 20_000);
}

#[test]
fn the_disk_in_memory_answers_as_the_real_one() {
    for seed in 0..100 {
        let folder = tempfile::tempdir().unwrap();
        check(MemoryDisk::default(), folder.path(), seed);
    }
}
