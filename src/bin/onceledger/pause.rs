//! Named points at which a test may stop `run` and kill it. Only with the feature `testkit`.

/// Stops here where `ONCELEDGER_TESTKIT_PAUSE` is `point=FILE`: makes FILE, and goes on once it is
/// gone.
#[cfg(feature = "testkit")]
pub fn at(point: &str) {
    const EVERY: std::time::Duration = std::time::Duration::from_millis(2);
    let Ok(wanted) = std::env::var("ONCELEDGER_TESTKIT_PAUSE") else { return };
    let Some(("", marker)) = wanted.strip_prefix(point).and_then(|rest| rest.split_once('=')) else { return };
    if std::fs::write(marker, std::process::id().to_string()).is_err() {
        return;
    }
    while std::path::Path::new(marker).exists() {
        std::thread::sleep(EVERY);
    }
}

/// Never stops.
#[cfg(not(feature = "testkit"))]
pub fn at(_point: &str) {}
