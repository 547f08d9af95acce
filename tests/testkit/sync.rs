//! Failed syncs, one file system after another.

use onceledger::testkit::{DiskFile, Failure, Fault, FaultDisk, Operation, SyncMode};

use super::disk::{disk_with, open};

const PAGE: usize = 4096;

fn failing(mode: SyncMode, failure: Failure, bytes: &[u8]) -> FaultDisk {
    let disk = disk_with(bytes);
    disk.set_sync_mode(mode);
    disk.set_plan(Fault::on(Operation::Sync).with(failure));
    disk
}

fn seen(disk: &FaultDisk) -> Vec<u8> {
    disk.export("/file").unwrap()
}

fn kept(disk: &FaultDisk) -> Vec<u8> {
    disk.power_loss().export("/file").unwrap()
}

/// Writes `new` over a page of `old`, fails the sync, and syncs again.
fn lose_a_page(mode: SyncMode) -> (FaultDisk, std::sync::Arc<dyn DiskFile>) {
    let disk = failing(mode, Failure::Sync, &[1; PAGE]);
    let file = open(&disk);
    file.write_at(0, &[2; PAGE]).unwrap();
    file.sync().unwrap_err();
    (disk, file)
}

#[test]
fn a_plain_sync_error_leaves_the_pages_dirty() {
    let disk = failing(SyncMode::Xfs, Failure::Io, &[1; PAGE]);
    let file = open(&disk);
    file.write_at(0, &[2; PAGE]).unwrap();
    file.sync().unwrap_err();
    assert_eq!(kept(&disk), [1; PAGE]);
    file.sync().unwrap();
    assert_eq!(kept(&disk), [2; PAGE]);
}

#[test]
fn on_ext4_and_xfs_a_failed_sync_is_lost_at_the_next_power_loss_though_reads_showed_it() {
    for mode in [SyncMode::Ext4Ordered, SyncMode::Xfs] {
        let (disk, file) = lose_a_page(mode);
        assert_eq!(seen(&disk), [2; PAGE], "{mode:?}");
        file.sync().unwrap();
        assert_eq!(seen(&disk), [2; PAGE], "{mode:?}: the second sync says it is fine");
        assert_eq!(kept(&disk), [1; PAGE], "{mode:?}: and it is not");
        assert_eq!(disk.pending_writes(), 0);
        let images = disk.crash_images(&Default::default());
        assert_eq!(images.len(), 1, "{mode:?}: no image has the bytes");
    }
}

#[test]
fn a_failed_sync_outlives_the_process_in_the_cache() {
    let (disk, _) = lose_a_page(SyncMode::Xfs);
    let next = disk.process_crash();
    assert_eq!(seen(&next), [2; PAGE]);
    open(&next).sync().unwrap();
    assert_eq!(kept(&next), [1; PAGE]);
}

#[test]
fn a_later_write_to_the_page_saves_all_of_it() {
    for mode in [SyncMode::Ext4Ordered, SyncMode::Xfs] {
        let (disk, file) = lose_a_page(mode);
        file.write_at(100, &[3; 10]).unwrap();
        file.sync().unwrap();
        let mut wanted = vec![2; PAGE];
        wanted[100..110].fill(3);
        assert_eq!(kept(&disk), wanted, "{mode:?}");
    }
}

#[test]
fn rewriting_every_page_before_anything_else_saves_them() {
    for mode in SyncMode::ALL {
        let disk = failing(mode, Failure::Sync, &[1; 3 * PAGE + 50]);
        let file = open(&disk);
        file.write_at(PAGE as u64 - 5, &[2; PAGE]).unwrap();
        let _ = file.sync();
        let _ = file.sync();
        let shown = seen(&disk);
        for (page, bytes) in shown.chunks(PAGE).enumerate() {
            file.write_at((page * PAGE) as u64, bytes).unwrap();
        }
        file.sync().unwrap();
        assert_eq!(kept(&disk), shown, "{mode:?}");
    }
}

#[test]
fn memory_pressure_shows_what_the_disk_has() {
    let (disk, _) = lose_a_page(SyncMode::Ext4Ordered);
    disk.drop_caches();
    assert_eq!(seen(&disk), [1; PAGE]);
}

#[test]
fn btrfs_reverts_bytes_and_length_for_reads_too() {
    let disk = failing(SyncMode::Btrfs, Failure::Sync, &[1; PAGE]);
    let file = open(&disk);
    file.write_at(100, &[2; PAGE]).unwrap();
    file.sync().unwrap_err();
    assert_eq!(seen(&disk), [1; PAGE]);
    file.sync().unwrap();
    assert_eq!(kept(&disk), [1; PAGE]);
}

#[test]
fn ext4_ordered_keeps_the_new_length_and_xfs_does_not() {
    for (mode, wanted) in
        [(SyncMode::Ext4Ordered, [vec![1; PAGE], vec![0; PAGE]].concat()), (SyncMode::Xfs, vec![1; PAGE])]
    {
        let disk = failing(mode, Failure::Sync, &[1; PAGE]);
        let file = open(&disk);
        file.write_at(PAGE as u64, &[2; PAGE]).unwrap();
        file.sync().unwrap_err();
        assert_eq!(seen(&disk).len(), 2 * PAGE);
        assert_eq!(kept(&disk), wanted, "{mode:?}");
        file.sync().unwrap();
        assert_eq!(kept(&disk), wanted, "{mode:?}");
    }
}

#[test]
fn ext4_data_says_yes_and_tells_the_next_sync() {
    let disk = failing(SyncMode::Ext4Data, Failure::Sync, &[1; 2 * PAGE]);
    let file = open(&disk);
    file.write_at(0, &[2; PAGE]).unwrap();
    file.sync().unwrap();
    assert_eq!(kept(&disk)[..PAGE], [2; PAGE], "the journal has it");
    file.write_at(PAGE as u64, &[3; PAGE]).unwrap();
    file.sync().unwrap_err();
    assert_eq!(seen(&disk)[..PAGE], [2; PAGE]);
    assert_eq!(kept(&disk)[..PAGE], [1; PAGE], "the journal's space was used again");
    assert_eq!(kept(&disk)[PAGE..], [3; PAGE], "the sync that told wrote its own");
    file.sync().unwrap();
    assert_eq!(kept(&disk)[..PAGE], [1; PAGE]);
}

#[test]
fn ext4_data_forgives_a_page_that_is_written_again() {
    let disk = failing(SyncMode::Ext4Data, Failure::Sync, &[1; PAGE]);
    let file = open(&disk);
    file.write_at(0, &[2; PAGE]).unwrap();
    file.sync().unwrap();
    file.write_at(5, &[3; 1]).unwrap();
    file.sync().unwrap_err();
    assert_eq!(kept(&disk), seen(&disk));
}

#[test]
fn an_unheard_error_is_told_to_whoever_opens_the_file_next_and_once() {
    let disk = failing(SyncMode::Ext4Data, Failure::Sync, &[1; PAGE]);
    let first = open(&disk);
    first.write_at(0, &[2; PAGE]).unwrap();
    first.sync().unwrap();
    drop(first);
    let next = disk.process_crash();
    let (second, third) = (open(&next), open(&next));
    second.sync().unwrap_err();
    second.sync().unwrap();
    third.sync().unwrap_err();
    open(&next).sync().unwrap();
    assert_eq!(kept(&next), [1; PAGE]);
}

#[test]
fn a_partly_failed_sync_loses_some_pages() {
    for mode in [SyncMode::Ext4Ordered, SyncMode::Xfs] {
        let disk = failing(mode, Failure::SyncPart, &[1; 64 * PAGE]);
        let file = open(&disk);
        file.write_at(0, &[2; 64 * PAGE]).unwrap();
        file.sync().unwrap_err();
        let pages: Vec<u8> = kept(&disk).chunks(PAGE).map(|page| page[0]).collect();
        let lost = pages.iter().filter(|page| **page == 1).count();
        assert!((10..54).contains(&lost), "{mode:?}: {lost} of 64");
        assert_eq!(seen(&disk), [2; 64 * PAGE]);
    }
}
