//! The states a crash can leave.

use std::collections::BTreeSet;
use std::path::Path;

use onceledger::testkit::{CrashOptions, Disk, FaultDisk, Mode, SplitMix};

use super::disk::{disk_with, open};

fn whole_writes() -> CrashOptions {
    CrashOptions { tears_max: 0, ..CrashOptions::default() }
}

/// A disk with `count` pending writes of a byte in sectors of their own.
fn pending(count: usize) -> FaultDisk {
    let disk = disk_with(&vec![0; count * 512]);
    let file = open(&disk);
    for index in 0..count {
        file.write_at(index as u64 * 512, &[1]).unwrap();
    }
    disk
}

fn bits(disk: &FaultDisk) -> Vec<u8> {
    disk.export("/file").unwrap().into_iter().step_by(512).collect()
}

#[test]
fn subsets_are_exactly_two_to_the_n_up_to_twelve() {
    for count in 0..=12 {
        let images = pending(count).crash_images(&whole_writes());
        assert_eq!(images.len(), 1 << count);
        let states: BTreeSet<Vec<u8>> = images.map(|image| bits(&image)).collect();
        assert_eq!(states.len(), 1 << count, "{count} writes");
    }
}

#[test]
fn above_twelve_prefixes_drops_survivors_pairs_and_random_subsets_are_tried() {
    let count = 20;
    let disk = pending(count);
    let states: BTreeSet<Vec<u8>> = disk.crash_images(&whole_writes()).map(|image| bits(&image)).collect();
    for index in 0..count {
        let prefix: Vec<u8> = (0..count).map(|at| u8::from(at < index)).collect();
        let single: Vec<u8> = (0..count).map(|at| u8::from(at == index)).collect();
        let dropped: Vec<u8> = (0..count).map(|at| u8::from(at != index)).collect();
        assert!(states.contains(&prefix) && states.contains(&single) && states.contains(&dropped));
        for other in index + 1..count {
            let pair = (0..count).map(|at| u8::from(at != index && at != other)).collect();
            assert!(states.contains::<Vec<u8>>(&pair));
        }
    }
    assert!(states.contains(&vec![1; count]));
    assert!(states.len() > 190 + 3 * count + 200);
}

#[test]
fn many_pending_writes_give_a_bounded_number_of_states() {
    let images = pending(400).crash_images(&whole_writes());
    assert_eq!(images.len(), 401 + 399 + 399 + 2048 + 256);
}

#[test]
fn a_write_of_three_sectors_is_torn_in_every_way() {
    let disk = disk_with(&[0; 2048]);
    open(&disk).write_at(256, &[1; 1024]).unwrap();
    let states: BTreeSet<Vec<u8>> = disk
        .crash_images(&CrashOptions::default())
        .map(|image| {
            let bytes = image.export("/file").unwrap();
            [256..512, 512..1024, 1024..1280]
                .map(|range| {
                    let sector = &bytes[range];
                    assert!(sector.iter().all(|byte| *byte == sector[0]), "sectors are whole");
                    sector[0]
                })
                .to_vec()
        })
        .collect();
    let wanted: [[u8; 3]; 7] = [[0, 0, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]];
    assert_eq!(states, wanted.iter().map(|state| state.to_vec()).collect());
}

#[test]
fn names_survive_in_the_order_of_their_directory() {
    let disk = FaultDisk::new(1);
    disk.import("/a/keep", b"");
    disk.import("/b/keep", b"");
    for name in ["/a/1", "/b/1", "/a/2", "/b/2", "/a/3"] {
        disk.open(Path::new(name), Mode::CreateNew).unwrap();
    }
    let mut states = BTreeSet::new();
    for image in disk.crash_images(&whole_writes()) {
        let count = |folder: &str| {
            let names = image.list(Path::new(folder)).unwrap();
            for (index, name) in names.iter().take(names.len() - 1).enumerate() {
                assert_eq!(*name, Path::new(folder).join((index + 1).to_string()));
            }
            names.len() - 1
        };
        states.insert((count("/a"), count("/b")));
    }
    assert_eq!(states.len(), 4 * 3);
}

#[test]
fn names_and_bytes_survive_independently() {
    let disk = disk_with(&[0; 512]);
    open(&disk).write_at(0, &[1]).unwrap();
    disk.rename(Path::new("/file"), Path::new("/other")).unwrap();
    let states: BTreeSet<(bool, u8)> = disk
        .crash_images(&whole_writes())
        .map(|image| match (image.export("/file"), image.export("/other")) {
            (Some(bytes), None) => (false, bytes[0]),
            (None, Some(bytes)) => (true, bytes[0]),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(states.len(), 4);
}

#[test]
fn an_image_has_nothing_pending() {
    let disk = pending(3);
    disk.open(Path::new("/new"), Mode::CreateNew).unwrap();
    for image in disk.crash_images(&CrashOptions::default()) {
        assert_eq!((image.pending_writes(), image.pending_names()), (0, 0));
        assert_eq!(image.power_loss().export("/file"), image.export("/file"));
    }
}

#[test]
fn images_are_the_same_for_the_same_seed_and_can_be_skipped() {
    let disk = pending(15);
    let origins = |seed| -> Vec<String> {
        let options = CrashOptions { seed, ..CrashOptions::default() };
        disk.crash_images(&options).map(|image| image.origin()).collect()
    };
    assert_eq!(origins(3), origins(3));
    assert_ne!(origins(3), origins(4));
    let options = CrashOptions { seed: 3, ..CrashOptions::default() };
    let tenth: Vec<String> = disk.crash_images(&options).step_by(10).map(|image| image.origin()).collect();
    assert_eq!(tenth, origins(3).into_iter().step_by(10).collect::<Vec<_>>());
}

#[test]
fn epochs_are_the_states_before_each_sync_that_has_work() {
    let disk = disk_with(&[0; 512]);
    disk.keep_epochs(true);
    let file = open(&disk);
    file.sync().unwrap();
    file.write_at(0, &[1]).unwrap();
    file.sync().unwrap();
    disk.remove(Path::new("/file")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let epochs = disk.epochs();
    assert_eq!(epochs.iter().map(|epoch| epoch.operation).collect::<Vec<_>>(), [4, 6]);
    assert_eq!(epochs[0].disk.crash_images(&CrashOptions::default()).len(), 2);
    assert_eq!(epochs[1].disk.pending_names(), 1);
    assert!(disk.epochs().is_empty(), "they are handed out once");
}

#[test]
fn all_kept_is_what_reads_saw_and_all_lost_is_the_last_sync() {
    for seed in 0..60 {
        let mut random = SplitMix::new(seed);
        let disk = disk_with(&[9; 3000]);
        let file = open(&disk);
        let mut synced = disk.export("/file").unwrap();
        for _ in 0..random.below(40) {
            let (offset, len) = (random.below(10_000), random.below(5000) as usize);
            match random.below(5) {
                0 => file.set_len(offset).unwrap(),
                1 => {
                    file.sync().unwrap();
                    synced = disk.export("/file").unwrap();
                }
                _ => file.write_at(offset, &vec![random.next_u64() as u8; len]).unwrap(),
            }
        }
        let mut images = disk.crash_images(&whole_writes());
        let first = images.next().unwrap();
        assert_eq!(first.export("/file").unwrap(), synced, "seed {seed}: nothing kept comes first");
        assert_eq!(disk.power_loss().export("/file").unwrap(), synced);
        let seen = disk.export("/file");
        assert!(disk.crash_images(&whole_writes()).any(|image| image.export("/file") == seen), "seed {seed}");
        assert_eq!(disk.process_crash().export("/file"), seen);
    }
}
