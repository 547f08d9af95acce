//! Keys, fingerprints and canonical JSON: the vectors that other languages use, the cases from the
//! field by number, and properties.

#![allow(clippy::unwrap_used)]

mod canonical;
mod cases;
mod properties;
mod serialize;
mod vectors;

use onceledger::Selection;
use onceledger::canonical::Value;

/// No pointers.
const NONE: [&str; 0] = [];

#[track_caller]
fn parse(text: &str) -> Value {
    Value::parse(text).unwrap()
}

#[track_caller]
fn canonical(text: &str) -> String {
    parse(text).to_canonical()
}

#[track_caller]
fn tool(args: &str, identity: &[&str], guard: &[&str]) -> Selection {
    Selection::tool(&parse(args), identity, guard).unwrap()
}

#[track_caller]
fn by_hand(args: &str, guard: &[&str]) -> Selection {
    Selection::by_hand(&parse(args), guard).unwrap()
}
