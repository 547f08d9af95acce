//! A claim as the key-value peers store it: state, token, fingerprint, outcome.

use crate::Result;
use crate::batch::Answer;
use crate::work::{Digest, FINGERPRINT};

const CLAIMED: u8 = 1;
const DONE: u8 = 2;
const TOKEN: std::ops::Range<usize> = 1..9;
const HEAD: usize = 1 + 8 + 32;

/// A claim in progress.
pub fn claimed(token: u64, fingerprint: &Digest) -> [u8; HEAD] {
    head(CLAIMED, token, fingerprint)
}

/// A claim that is done.
pub fn done(token: u64, outcome: &str) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEAD + outcome.len());
    record.extend_from_slice(&head(DONE, token, &FINGERPRINT));
    record.extend_from_slice(outcome.as_bytes());
    record
}

/// The outcome of a claim that is done.
pub fn outcome(record: &[u8]) -> Option<&[u8]> {
    (record.first() == Some(&DONE)).then(|| &record[HEAD..])
}

/// What a claim of a key with this record hears.
pub fn standing(record: &[u8]) -> Answer {
    match outcome(record) {
        Some(outcome) => Answer::Done(outcome.len()),
        None => Answer::Held,
    }
}

/// Whether a record is in progress under this very token.
pub fn may_settle(record: Option<&[u8]>, token: u64) -> Result<()> {
    match record {
        Some(record) if record[0] == CLAIMED && record[TOKEN] == token.to_le_bytes() => Ok(()),
        Some(_) => Err("settled by another token".into()),
        None => Err("settled without a claim".into()),
    }
}

fn head(state: u8, token: u64, fingerprint: &Digest) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = state;
    head[TOKEN].copy_from_slice(&token.to_le_bytes());
    head[9..].copy_from_slice(fingerprint);
    head
}
