use proptest::prelude::*;

use super::*;
use crate::engine::files::{Disk, MemoryDisk, Mode};

const BYTES: u64 = 64;

fn file(disk: &MemoryDisk, name: &str) -> Arc<dyn DiskFile> {
    let file = disk.open(name.as_ref(), Mode::CreateNew).unwrap();
    file.write_at(0, &(0..BYTES as u8).collect::<Vec<_>>()).unwrap();
    file
}

fn whole(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

#[derive(Clone, Debug)]
enum Do {
    Write(u64, Vec<u8>),
    Len(u64),
    Sync,
    Read(u64, usize),
}

fn a_step() -> impl Strategy<Value = Do> {
    prop_oneof![
        4 => (0..2 * BYTES, prop::collection::vec(any::<u8>(), 0..24)).prop_map(|(at, bytes)| Do::Write(at, bytes)),
        1 => (0..2 * BYTES).prop_map(Do::Len),
        1 => Just(Do::Sync),
        4 => (0..2 * BYTES, 1..24_usize).prop_map(|(at, len)| Do::Read(at, len)),
    ]
}

proptest! {
    /// What is kept in memory reads as if it were in the file, leaves the file alone until it is
    /// released, and is in the file afterwards.
    #[test]
    fn what_is_held_back_reads_as_if_it_were_written(
        steps in prop::collection::vec(a_step(), 0..24),
        later in prop::collection::vec(a_step(), 0..6),
    ) {
        let disk = MemoryDisk::default();
        let (real, under) = (file(&disk, "/real"), file(&disk, "/under"));
        let before = whole(&*under);
        real.write_at(9, &[77]).unwrap();
        let ahead = Ahead::new(Arc::clone(&under), Some(77)).unwrap();
        let take = |step: &Do| {
            match step {
                Do::Write(at, bytes) if at + bytes.len() as u64 <= real.len().unwrap() => {
                    real.write_at(*at, bytes).unwrap();
                    ahead.write_at(*at, bytes).unwrap();
                }
                // redb makes a file longer before it writes there.
                Do::Write(..) => {}
                Do::Len(len) => {
                    real.set_len(*len).unwrap();
                    ahead.set_len(*len).unwrap();
                }
                Do::Sync => ahead.sync().unwrap(),
                Do::Read(at, len) => {
                    let (mut right, mut read) = (vec![1; *len], vec![2; *len]);
                    let is_right = real.read_at(*at, &mut right).is_ok();
                    assert_eq!(ahead.read_at(*at, &mut read).is_ok(), is_right, "{at} {len}");
                    assert!(!is_right || read == right, "{at} {len}: {read:?} {right:?}");
                }
            }
            assert_eq!(ahead.len().unwrap(), real.len().unwrap());
        };
        steps.iter().for_each(take);
        prop_assert_eq!(whole(&*under), before, "the file was touched too early");
        prop_assert_eq!(whole(&ahead), whole(&*real));
        ahead.release().unwrap();
        prop_assert_eq!(whole(&*under), whole(&*real));
        later.iter().for_each(take);
        prop_assert_eq!(whole(&*under), whole(&*real));
    }
}
