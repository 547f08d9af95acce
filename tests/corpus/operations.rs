//! Bytes as calls, crashes, failing operations and time, eight bytes a step, against the model.

use super::driver::{Driver, Step};

pub fn run(bytes: &[u8]) {
    const STEPS_MAX: usize = 64;
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let mut driver = Driver::create(u64::from(first), first & 1 == 1);
    for chunk in bytes.chunks_exact(8).take(STEPS_MAX) {
        let Ok(chunk) = <[u8; 8]>::try_from(chunk) else { return };
        if let Err(violation) = driver.step(Step::from_bytes(chunk, true)) {
            panic!("{violation}");
        }
    }
    if let Err(violation) = driver.end() {
        panic!("{violation}");
    }
}
