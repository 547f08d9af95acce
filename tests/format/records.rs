//! The records of `docs/FORMAT.md`, field by field.

use crate::bytes::{Fields, Reader};

const KINDS: [&str; 3] = ["json", "text", "binary"];
const ENDS: [&str; 2] = ["done", "failed"];
const PLACES: [&str; 3] = ["nowhere", "here", "at"];
const REASONS: [&str; 5] = ["dropped", "panicked", "unknown_error", "holder_gone", "lapsed"];
const RULES: [&str; 3] = ["hold", "reconcile", "resend"];
const VERDICTS: [&str; 3] = ["done", "failed", "not_done"];
const STANDINGS: [&str; 5] = ["vacant", "in_progress", "done", "failed", "uncertain"];
const TOLD: [&str; 12] = [
    "granted",
    "renewed",
    "done",
    "failed",
    "released",
    "uncertain",
    "resolved_done",
    "resolved_failed",
    "resolved_not_done",
    "late_done",
    "late_failed",
    "late_released",
];
const DECISIONS: [&str; 4] = ["pending", "approved", "denied", "withdrawn"];
const LINES: [&str; 7] = ["requested", "approved", "denied", "withdrawn", "spent", "returned", "redacted"];

/// The events, in the order of their numbers.
pub const EVENTS: [&str; 12] = [
    "session", "grant", "renew", "settle", "release", "doubt", "resolve", "late", "moved", "adopted", "cell",
    "approval",
];

fn body(r: &mut Reader) {
    r.variant("kind", &KINDS);
    r.flag("error");
    r.u64("len");
    r.u32("crc");
    if r.variant("place", &PLACES) == "at" {
        r.u64("at");
    }
    if r.option("exit") {
        r.i32("code");
    }
}

fn grant(r: &mut Reader) {
    r.fixed("key", 32);
    r.fixed("fingerprint", 32);
    r.fixed("args", 32);
    r.u8("canonical");
    r.u64("session");
    r.u32("attempt");
    r.u64("first_attempt_ms");
    r.u64("lease_until_ms");
    r.u32("keep_s");
    r.u32("remember_s");
    if r.variant("recovery", &RULES) == "resend" {
        r.u32("window_s");
    }
    r.flag("resumed");
    r.text("scope");
    r.text("label");
}

fn told(r: &mut Reader) {
    r.u64("token");
    if r.variant("what", &TOLD) == "uncertain" {
        r.variant("reason", &REASONS);
    }
    r.u64("wall_ms");
    r.text("by");
    r.text("why");
    if r.option("body") {
        body(r);
    }
}

/// A row of the log.
pub fn event(fields: &[u8]) -> (&'static str, Fields) {
    let mut r = Reader::new(fields);
    r.u64("token");
    r.u64("prev");
    r.u64("late_ms");
    r.u64("wall_ms");
    let name = r.variant("event", &EVENTS);
    match name {
        "session" => {
            r.u64("number");
            r.fixed("id", 16);
            r.fixed("boot_id", 16);
            r.u32("pid");
        }
        "grant" => grant(&mut r),
        "renew" => {
            r.fixed("key", 32);
            r.u64("lease_until_ms");
        }
        "settle" => {
            r.fixed("key", 32);
            r.variant("end", &ENDS);
            body(&mut r);
        }
        "release" => {
            r.fixed("key", 32);
            r.text("why");
        }
        "doubt" => {
            r.fixed("key", 32);
            r.variant("reason", &REASONS);
            r.text("why");
        }
        "resolve" => {
            r.fixed("key", 32);
            r.variant("verdict", &VERDICTS);
            body(&mut r);
            r.text("by");
            r.text("why");
            r.flag("forced");
        }
        "late" => {
            r.fixed("key", 32);
            if r.option("end") {
                r.variant("end", &ENDS);
            }
            body(&mut r);
        }
        "moved" => {
            grant(&mut r);
            if r.variant("standing", &STANDINGS) == "uncertain" {
                r.variant("reason", &REASONS);
            }
            r.u64("at_ms");
            r.u64("since_ms");
            body(&mut r);
            for _ in 0..r.count("history") {
                told(&mut r);
            }
        }
        "adopted" => {
            r.u64("epoch");
            r.text("by");
            r.text("why");
        }
        "cell" => {
            r.text("name");
            r.u64("version");
            if r.option("value") {
                body(&mut r);
            }
        }
        "approval" => {
            r.u64("id");
            r.fixed("key", 32);
            r.fixed("args", 32);
            r.u64("deadline_ms");
            r.u32("remember_s");
            r.variant("decision", &DECISIONS);
            r.u64("spent_by");
            r.u64("changed_ms");
            body(&mut r);
            r.text("scope");
            r.text("label");
            for _ in 0..r.count("lines") {
                r.variant("what", &LINES);
                r.u64("token");
                r.u64("wall_ms");
                r.text("by");
                r.text("why");
            }
        }
        other => panic!("{other}"),
    }
    (name, r.end())
}

/// The meta row.
pub fn meta(fields: &[u8]) -> Fields {
    let mut r = Reader::new(fields);
    r.fixed("ledger_id", 16);
    r.u64("epoch");
    r.u64("next_sequence");
    r.u64("count");
    r.u128("digest");
    r.u64("early_ms");
    r.u64("late_ms");
    r.u64("wall_ms");
    r.u64("boot_ms");
    r.fixed("boot_id", 16);
    r.u64("created_ms");
    r.end()
}

/// The anchor, behind its magic.
pub fn anchor(fields: &[u8]) -> Fields {
    let mut r = Reader::new(fields);
    r.variant("state", &["creating", "open", "clean"]);
    r.fixed("ledger_id", 16);
    r.u64("epoch");
    r.fixed("boot_id", 16);
    r.u64("next_sequence");
    r.u64("count");
    r.u128("digest");
    r.end()
}

/// The first record of a session file.
pub fn session_head(fields: &[u8]) -> Fields {
    let mut r = Reader::new(fields);
    r.fixed("ledger_id", 16);
    r.fixed("id", 16);
    r.fixed("boot_id", 16);
    r.u32("pid");
    r.end()
}

/// Every further record of a session file.
pub fn left_outcome(fields: &[u8]) -> Fields {
    let mut r = Reader::new(fields);
    r.fixed("key", 32);
    r.u64("token");
    match r.variant("settlement", &["done", "failed", "released", "uncertain"]) {
        "done" | "failed" => {
            r.variant("kind", &KINDS);
            r.flag("error");
            if r.option("exit") {
                r.i32("code");
            }
            r.u64("len");
            r.flag("stored");
            r.bytes("bytes");
        }
        _ => r.text("why"),
    }
    r.end()
}
