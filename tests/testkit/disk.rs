//! Bytes, names, locks, faults and damage.

use std::io::ErrorKind;
use std::path::Path;

use onceledger::testkit::{
    Disk, DiskFile, Failure, Fault, FaultDisk, FileSystem, LockKind, Mode, Node, Operation, Plan,
};

const FILE: &str = "/file";

/// A disk with one durable file of these bytes.
pub fn disk_with(bytes: &[u8]) -> FaultDisk {
    let disk = FaultDisk::new(1);
    disk.import(FILE, bytes);
    disk
}

pub fn open(disk: &FaultDisk) -> std::sync::Arc<dyn DiskFile> {
    disk.open(Path::new(FILE), Mode::Existing).unwrap()
}

#[track_caller]
fn check_error<T>(result: std::io::Result<T>, kind: ErrorKind) {
    match result {
        Ok(_) => panic!("it worked, and {kind:?} was to come"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}

#[test]
fn an_unsynced_write_is_read_back_and_lost_with_the_power() {
    let disk = disk_with(b"old");
    let file = open(&disk);
    file.write_at(0, b"new").unwrap();
    assert_eq!(disk.export(FILE).unwrap(), b"new");
    assert_eq!(disk.power_loss().export(FILE).unwrap(), b"old");
    file.sync().unwrap();
    assert_eq!(disk.power_loss().export(FILE).unwrap(), b"new");
}

#[test]
fn an_unsynced_length_is_lost_with_the_power() {
    let disk = disk_with(&[7; 5000]);
    let file = open(&disk);
    file.set_len(10).unwrap();
    file.set_len(20).unwrap();
    assert_eq!(disk.export(FILE).unwrap(), [[7; 10], [0; 10]].concat());
    assert_eq!(disk.power_loss().export(FILE).unwrap(), [7; 5000]);
    file.sync().unwrap();
    assert_eq!(disk.power_loss().export(FILE).unwrap(), [[7; 10], [0; 10]].concat());
}

#[test]
fn writes_and_reads_cross_pages_and_holes() {
    let disk = FaultDisk::new(1);
    let file = disk.open(Path::new(FILE), Mode::CreateNew).unwrap();
    let mut model = vec![0; 20_000];
    for (offset, len) in [(4090, 12), (12_287, 2), (19_000, 1000), (0, 1), (8000, 9000)] {
        let data: Vec<u8> = (0..len).map(|index| (index * 7 + 1) as u8).collect();
        file.write_at(offset as u64, &data).unwrap();
        model[offset..offset + len].copy_from_slice(&data);
    }
    assert_eq!(file.len().unwrap(), 20_000);
    assert_eq!(disk.export(FILE).unwrap(), model);
    let mut out = vec![1; 15_000];
    file.read_at(3000, &mut out).unwrap();
    assert_eq!(out, model[3000..18_000]);
    check_error(file.read_at(19_999, &mut [0; 2]), ErrorKind::UnexpectedEof);
}

#[test]
fn a_killed_process_leaves_the_cache_and_what_was_pending() {
    let disk = disk_with(b"old");
    open(&disk).write_at(0, b"new").unwrap();
    let after = disk.process_crash();
    assert_eq!(after.export(FILE).unwrap(), b"new");
    assert_eq!(after.power_loss().export(FILE).unwrap(), b"old");
    open(&after).sync().unwrap();
    assert_eq!(after.power_loss().export(FILE).unwrap(), b"new");
    assert_eq!(disk.power_loss().export(FILE).unwrap(), b"old", "the crashed disk is another one");
}

#[test]
fn syncing_a_new_file_does_not_make_its_name_durable() {
    let disk = FaultDisk::new(1);
    let file = disk.open(Path::new(FILE), Mode::CreateNew).unwrap();
    file.write_at(0, b"bytes").unwrap();
    file.sync().unwrap();
    assert_eq!(disk.power_loss().export(FILE), None);
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(disk.power_loss().export(FILE).unwrap(), b"bytes");
}

#[test]
fn syncing_a_directory_does_not_make_bytes_durable() {
    let disk = FaultDisk::new(1);
    let file = disk.open(Path::new(FILE), Mode::CreateNew).unwrap();
    file.write_at(0, b"bytes").unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(disk.power_loss().export(FILE).unwrap(), b"");
}

#[test]
fn a_rename_without_a_directory_sync_may_be_undone() {
    let disk = disk_with(b"old");
    let temporary = Path::new("/temporary");
    let file = disk.open(temporary, Mode::CreateNew).unwrap();
    file.write_at(0, b"new").unwrap();
    file.sync().unwrap();
    disk.rename(temporary, Path::new(FILE)).unwrap();
    assert_eq!(disk.export(FILE).unwrap(), b"new");
    assert_eq!(disk.power_loss().export(FILE).unwrap(), b"old");
    disk.sync_dir(Path::new("/")).unwrap();
    let after = disk.power_loss();
    assert_eq!(after.export(FILE).unwrap(), b"new");
    assert_eq!(after.export(temporary), None);
}

#[test]
fn a_removed_name_comes_back_without_a_directory_sync() {
    let disk = disk_with(b"bytes");
    let file = open(&disk);
    disk.remove(Path::new(FILE)).unwrap();
    assert_eq!(disk.node(Path::new(FILE)).unwrap(), None);
    assert_eq!(file.len().unwrap(), 5, "an open file outlives its name");
    assert_eq!(disk.power_loss().export(FILE).unwrap(), b"bytes");
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(disk.power_loss().export(FILE), None);
}

#[test]
fn a_directory_that_is_not_durable_takes_its_files_with_it() {
    let disk = FaultDisk::new(1);
    let folder = Path::new("/folder");
    disk.create_dir(folder).unwrap();
    disk.create_dir(folder).unwrap();
    disk.open(Path::new("/folder/a"), Mode::CreateNew).unwrap().sync().unwrap();
    disk.sync_dir(folder).unwrap();
    assert_eq!(disk.list(folder).unwrap(), [Path::new("/folder/a")]);
    assert_eq!(disk.power_loss().node(folder).unwrap(), None);
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(disk.power_loss().list(folder).unwrap(), [Path::new("/folder/a")]);
}

#[test]
fn a_rename_between_directories_is_durable_in_both_or_in_neither() {
    let disk = FaultDisk::new(1);
    disk.import("/a/x", b"x");
    disk.import("/b/y", b"y");
    disk.rename(Path::new("/a/x"), Path::new("/b/x")).unwrap();
    disk.rename(Path::new("/b/x"), Path::new("/b/z")).unwrap();
    let images: Vec<_> = disk.crash_images(&Default::default()).collect();
    assert_eq!(images.len(), 3, "both renames, the first, none");
    for image in images {
        let names = ["/a/x", "/b/x", "/b/z"];
        let found = names.iter().filter(|name| image.export(name).is_some()).count();
        assert_eq!(found, 1, "{}", image.origin());
    }
    disk.sync_dir(Path::new("/a")).unwrap();
    assert!(disk.power_loss().export("/b/x").is_some());
}

#[test]
fn names_behave_as_the_trait_says() {
    let disk = disk_with(b"bytes");
    let (root, file) = (Path::new("/"), Path::new(FILE));
    check_error(disk.open(file, Mode::CreateNew), ErrorKind::AlreadyExists);
    check_error(disk.open(Path::new("/none"), Mode::Existing), ErrorKind::NotFound);
    check_error(disk.open(Path::new("/no/folder"), Mode::CreateNew), ErrorKind::NotFound);
    check_error(disk.open(root, Mode::OpenOrCreate), ErrorKind::IsADirectory);
    check_error(disk.open(Path::new("/a/../b"), Mode::CreateNew), ErrorKind::InvalidInput);
    disk.link(file, Path::new("/second")).unwrap();
    check_error(disk.link(file, Path::new("/second")), ErrorKind::AlreadyExists);
    open(&disk).write_at(0, b"B").unwrap();
    assert_eq!(disk.export("/second").unwrap(), b"Bytes", "two names of one file");
    disk.rename(file, Path::new("/second")).unwrap();
    assert_eq!(disk.list(root).unwrap(), [file, Path::new("/second")], "renaming onto itself");
    assert_eq!(disk.node(file).unwrap(), Some(Node::File(5)));
    assert_eq!(disk.node(root).unwrap(), Some(Node::Directory));
    assert_eq!(disk.list(Path::new("/none")).unwrap(), Vec::<&Path>::new());
    assert_eq!(disk.canonical(Path::new("file")).unwrap(), file);
    check_error(disk.canonical(Path::new("/no/folder")), ErrorKind::NotFound);
    assert_eq!(disk.file_system(root).unwrap(), FileSystem::Local);
    disk.set_file_system(FileSystem::Network("NFS"));
    assert_eq!(disk.file_system(root).unwrap(), FileSystem::Network("NFS"));
}

#[test]
fn locks_belong_to_the_open_file() {
    let disk = disk_with(b"");
    let (one, two, three) = (open(&disk), open(&disk), open(&disk));
    assert!(one.try_lock(LockKind::Exclusive).unwrap());
    assert!(one.try_lock(LockKind::Exclusive).unwrap(), "its own lock is no conflict");
    assert!(!two.try_lock(LockKind::Shared).unwrap());
    let same = std::sync::Arc::clone(&one);
    drop(one);
    assert!(!two.try_lock(LockKind::Shared).unwrap(), "one handle is left");
    drop(same);
    assert!(two.try_lock(LockKind::Shared).unwrap());
    assert!(three.try_lock(LockKind::Shared).unwrap());
    assert!(!three.try_lock(LockKind::Exclusive).unwrap());
    assert!(two.try_lock(LockKind::Exclusive).unwrap(), "a failed conversion lost the old lock");
    two.unlock().unwrap();
    assert!(three.try_lock(LockKind::Exclusive).unwrap());
}

#[test]
fn locks_vanish_on_crash() {
    let disk = disk_with(b"");
    let holder = open(&disk);
    assert!(holder.try_lock(LockKind::Exclusive).unwrap());
    let image = disk.crash_images(&Default::default()).next().unwrap();
    for after in [disk.process_crash(), disk.power_loss(), image] {
        assert!(open(&after).try_lock(LockKind::Exclusive).unwrap(), "{}", after.origin());
    }
    assert!(!open(&disk).try_lock(LockKind::Exclusive).unwrap());
}

/// Every kind of operation once, on an empty disk. Returns the first error.
fn everything(disk: &FaultDisk) -> std::io::Result<()> {
    let (root, a, b) = (Path::new("/"), Path::new("/d/a"), Path::new("/d/b"));
    disk.create_dir(Path::new("/d"))?;
    let file = disk.open(a, Mode::CreateNew)?;
    file.try_lock(LockKind::Exclusive)?;
    file.set_len(1000)?;
    file.write_at(10, b"ten bytes.")?;
    file.sync()?;
    file.len()?;
    file.read_at(0, &mut [0; 20])?;
    file.unlock()?;
    disk.link(a, b)?;
    disk.rename(b, Path::new("/d/c"))?;
    disk.remove(a)?;
    disk.sync_dir(Path::new("/d"))?;
    disk.list(root)?;
    disk.node(root)?;
    drop(file);
    disk.node(root).map(drop)
}

#[test]
fn every_operation_can_fail_by_number_once_or_for_ever() {
    let clean = FaultDisk::new(1);
    everything(&clean).unwrap();
    assert_eq!(clean.operations(), 17);
    for number in 1..=17 {
        for (fault, wanted) in [(Fault::at(number), 1), (Fault::from(number).always(), 2)] {
            let disk = FaultDisk::new(1);
            disk.set_plan(fault);
            let failed = everything(&disk).is_err();
            // A close has no result, so only a fault that stays is noticed there.
            assert_eq!(failed, number != 16 || wanted == 2, "operation {number}");
            assert!(disk.injected() >= 1 && disk.injected() <= wanted, "operation {number}");
            assert!(disk.trace()[number as usize - 1].contains(" failed: Io"));
        }
    }
}

#[test]
fn every_kind_of_operation_can_fail() {
    for kind in Operation::ALL {
        let disk = FaultDisk::new(1);
        disk.set_plan(Fault::on(kind).with(Failure::Kind(ErrorKind::PermissionDenied)));
        let result = everything(&disk);
        assert_eq!(disk.injected(), 1, "{}", kind.name());
        if kind != Operation::Close {
            check_error(result, ErrorKind::PermissionDenied);
        }
    }
}

#[test]
fn faults_can_be_narrowed_by_path_delayed_and_repeated() {
    let disk = disk_with(b"");
    disk.import("/file.anchor", b"");
    let anchor = disk.open(Path::new("/file.anchor"), Mode::Existing).unwrap();
    disk.set_plan(Fault::on(Operation::Sync).path(".anchor").after(1).times(2));
    let results: Vec<bool> = (0..5).map(|_| anchor.sync().is_ok()).collect();
    assert_eq!(results, [true, false, false, true, true]);
    disk.set_plan(Fault::on(Operation::Sync).path(".anchor").always());
    open(&disk).sync().unwrap();
}

#[test]
fn a_short_write_leaves_a_part_and_fails() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let disk = FaultDisk::new(seed);
        disk.import(FILE, b"");
        disk.set_plan(Fault::on(Operation::Write).with(Failure::Short));
        open(&disk).write_at(0, &[1; 100]).unwrap_err();
        let written = disk.export(FILE).unwrap();
        assert!(written.len() < 100 && written.iter().all(|byte| *byte == 1));
        lengths.insert(written.len());
    }
    assert!(lengths.len() > 10, "the place differs by seed: {lengths:?}");
}

#[test]
fn a_full_disk_refuses_growth_and_nothing_else() {
    let disk = disk_with(&[1; 6000]);
    let file = open(&disk);
    file.set_len(20_000).unwrap();
    disk.set_plan(Plan::new().full_from(1));
    file.write_at(0, &[2; 6000]).unwrap();
    file.set_len(15_000).unwrap();
    file.sync().unwrap();
    file.read_at(0, &mut [0; 6000]).unwrap();
    check_error(file.set_len(15_001), ErrorKind::StorageFull);
    check_error(file.write_at(9000, b"in a hole"), ErrorKind::StorageFull);
    check_error(file.write_at(7000, &[3; 2000]), ErrorKind::StorageFull);
    let bytes = disk.export(FILE).unwrap();
    assert_eq!(bytes[7000..8192], [3; 1192], "what had a place was written");
    assert_eq!(bytes[8192..9000], [0; 808]);
    check_error(disk.open(Path::new("/new"), Mode::CreateNew), ErrorKind::StorageFull);
    check_error(disk.link(Path::new(FILE), Path::new("/new")), ErrorKind::StorageFull);
    check_error(disk.create_dir(Path::new("/new")), ErrorKind::StorageFull);
    disk.rename(Path::new(FILE), Path::new("/other")).unwrap();
    disk.remove(Path::new("/other")).unwrap();
}

#[test]
fn after_the_crash_point_nothing_happens_any_more() {
    let clean = FaultDisk::new(1);
    everything(&clean).unwrap();
    let trace = clean.trace();
    for number in 1..=clean.operations() {
        let disk = FaultDisk::new(1);
        disk.stop_at(number);
        let _ = everything(&disk);
        assert!(disk.stopped());
        assert_eq!(disk.operations(), number - 1);
        assert_eq!(disk.trace(), trace[..number as usize - 1]);
    }
    let disk = FaultDisk::new(1);
    disk.stop_at(clean.operations() + 1);
    everything(&disk).unwrap();
    assert!(!disk.stopped(), "the run ended before the crash point");
    disk.stop();
    assert!(everything(&disk).is_err());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let disk = FaultDisk::new(seed);
        disk.set_plan(Fault::on(Operation::Write).with(Failure::Short).always());
        disk.import(FILE, b"");
        for size in 1..20 {
            open(&disk).write_at(disk.export(FILE).unwrap().len() as u64, &vec![1; size]).unwrap_err();
        }
        disk.trace()
    };
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(0), run(1));
}

#[test]
fn damage_is_seen_by_reads_and_survives() {
    let bytes: Vec<u8> = (0..10_000).map(|index| (index / 512) as u8 + 1).collect();
    let disk = disk_with(&bytes);
    let copy = disk.snapshot(FILE).unwrap();
    let check = |wanted: &[u8]| {
        assert_eq!(disk.export(FILE).unwrap(), wanted);
        assert_eq!(disk.power_loss().export(FILE).unwrap(), wanted);
        disk.restore(FILE, &copy);
        assert_eq!(disk.export(FILE).unwrap(), bytes);
    };
    let mut wanted = bytes.clone();
    wanted[5000] ^= 0x81;
    disk.flip(FILE, 5000, 0x81);
    check(&wanted);

    let mut wanted = bytes.clone();
    wanted[9728..].fill(0);
    disk.zero_sector(FILE, 19);
    check(&wanted);

    let mut wanted = bytes.clone();
    wanted[..4096].copy_from_slice(&bytes[4096..8192]);
    wanted[4096..8192].copy_from_slice(&bytes[..4096]);
    disk.swap_pages(FILE, 0, 1, 4096);
    check(&wanted);

    disk.truncate(FILE, 100);
    check(&bytes[..100]);
    disk.import(FILE, b"other");
    check(b"other");

    assert!(disk.lose(FILE) && !disk.lose(FILE));
    assert_eq!(disk.export(FILE), None);
    disk.import(FILE, &copy.to_bytes());
    assert_eq!(disk.power_loss().export_durable(FILE).unwrap(), bytes);
}

#[test]
#[should_panic(expected = "no file /none")]
fn damage_to_a_file_that_is_not_there_is_a_mistake_of_the_test() {
    FaultDisk::new(1).flip("/none", 0, 1);
}
