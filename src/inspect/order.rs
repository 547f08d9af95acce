//! The order of a key's history: the key's own lines and those of its approvals, which are kept
//! apart, put into one line.
//!
//! Each of them is in order by itself, and that order is kept. Between them the wall clock decides,
//! but only where the log's own numbers do not: it may have been set back.

use super::{Past, PastWhat};

/// Lines that are in order by themselves, oldest first.
pub(super) struct Strand {
    lines: Vec<(u64, Past, u64)>,
}

impl Strand {
    /// The key's own lines.
    pub fn of_key(lines: Vec<Past>) -> Self {
        let known = |past: &Past| (past.what == PastWhat::Granted).then(|| past.token.0.saturating_mul(2));
        Strand::new(lines, known)
    }

    /// The lines of the approval with this id.
    pub fn of_approval(id: u64, lines: Vec<Past>) -> Self {
        let known = |past: &Past| match past.what {
            PastWhat::ApprovalRequested => Some(id.saturating_mul(2)),
            // In the same commit as its grant, right behind it.
            PastWhat::ApprovalSpent => Some(past.token.0.saturating_mul(2).saturating_add(1)),
            _ => None,
        };
        Strand::new(lines, known)
    }

    /// `known` is where a line stands for certain. The others stand between those.
    fn new(lines: Vec<Past>, known: impl Fn(&Past) -> Option<u64>) -> Self {
        let mut begin = 0;
        let mut bounded: Vec<(u64, Past, u64)> = Vec::with_capacity(lines.len());
        for line in lines {
            let place = known(&line);
            bounded.push((place.unwrap_or(begin), line, place.unwrap_or(u64::MAX)));
            // Two numbers for every row: what is behind this one is in a later row.
            begin = place.map_or(begin, |place| place.saturating_add(2));
        }
        let mut end = u64::MAX;
        for (begin, _, last) in bounded.iter_mut().rev() {
            let place = *last;
            *last = place.min(end);
            end = if place == *begin { place.saturating_sub(2) } else { end };
        }
        // The next line is taken from the end.
        bounded.reverse();
        Strand { lines: bounded }
    }

    /// Whether this strand still has the end of the grant that gave an approval back.
    fn still_ends(&self, given_back: &Past) -> bool {
        let ends = |past: &Past| matches!(past.what, PastWhat::Released | PastWhat::ResolvedNotDone);
        self.lines.iter().any(|(_, past, _)| past.token == given_back.token && ends(past))
    }
}

/// All lines in one, oldest first.
pub(super) fn woven(mut strands: Vec<Strand>) -> Vec<Past> {
    let mut woven = Vec::new();
    while let Some(next) = next(&strands) {
        let line = strands.get_mut(next).and_then(|strand| strand.lines.pop());
        woven.extend(line.map(|(_, past, _)| past));
    }
    woven
}

/// The strand whose first line comes next.
fn next(strands: &[Strand]) -> Option<usize> {
    let heads = || strands.iter().enumerate().filter_map(|(at, strand)| strand.lines.last().map(|head| (at, head)));
    let may_come = |(at, (begin, past, _)): &(usize, &(u64, Past, u64))| {
        let later = heads().any(|(other, (_, _, end))| other != *at && end < begin);
        let waits = past.what == PastWhat::ApprovalReturned && strands.iter().any(|strand| strand.still_ends(past));
        !(later || waits)
    };
    // The line with the smallest beginning may always come but for a wait, and a wait ends.
    let first = heads().filter(may_come).min_by_key(|(at, (begin, past, _))| (past.at_ms, *begin, *at));
    first.or_else(|| heads().min_by_key(|(at, (begin, _, _))| (*begin, *at))).map(|(at, _)| at)
}
