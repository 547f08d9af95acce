//! Bytes as every kind of record: what decodes must encode to the same bytes again, and nothing may
//! panic or allocate without bound. The first byte says which kind, and whether the checksum is made
//! right, so that the decoder behind it is met.

use onceledger::testkit::seam;

pub fn run(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let number = u64::from(kind >> 4) + 1;
    let sealed = |number| if kind & 8 == 0 { bytes.to_vec() } else { seam::resealed(number, bytes) };
    let (read, again) = match kind & 7 {
        0 | 5 | 6 => {
            let sealed = sealed(number);
            let again = seam::event_again(number, &sealed);
            (sealed, again)
        }
        1 => {
            let sealed = sealed(u64::MAX);
            let again = seam::meta_again(&sealed);
            (sealed, again)
        }
        2 => {
            let sealed = sealed(0);
            let again = seam::anchor_again(&sealed);
            (sealed, again)
        }
        3 => {
            let mut file = ((bytes.len() as u64) + 4).to_le_bytes().to_vec();
            file.extend(seam::resealed(0, bytes));
            let again = seam::session_again(&file);
            (file, again)
        }
        4 => {
            let again = seam::session_again(bytes);
            (bytes.to_vec(), again)
        }
        _ => {
            let _ = seam::body_is_whole(number, bytes);
            return;
        }
    };
    if let Some(again) = again {
        assert_eq!(again, read[..again.len()], "a record of kind {kind} does not encode as it was read");
    }
}
