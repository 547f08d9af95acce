//! Text as canonical JSON, against serde_json where both must agree: what it takes is JSON, the
//! canonical form of the canonical form is itself, and both read the same value.

use onceledger::canonical::Value;

pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let ours = Value::parse(text);
    let theirs = serde_json::from_str::<serde_json::Value>(text);
    let Ok(value) = ours else { return };
    let canonical = value.to_canonical();
    let again = Value::parse(&canonical).unwrap_or_else(|error| panic!("{canonical:?} is not JSON: {error}"));
    assert_eq!(again.to_canonical(), canonical, "not canonical");
    match theirs {
        // Numbers that no double holds are the one thing serde_json refuses and we keep.
        Err(error) => assert!(error.to_string().contains("number out of range"), "{text:?}: {error}"),
        Ok(theirs) => {
            let read = serde_json::from_str::<serde_json::Value>(&canonical);
            let read = read.unwrap_or_else(|error| panic!("{canonical:?}: {error}"));
            assert!(same(&theirs, &read), "{text:?} reads as {theirs}, its canonical form {canonical:?} as {read}");
        }
    }
}

/// Equal, numbers as doubles: 1, 1.0 and 1e0 are one number.
fn same(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (one, other) {
        (Number(one), Number(other)) => one.as_f64() == other.as_f64(),
        (Array(one), Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Object(one), Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}
