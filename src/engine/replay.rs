//! What an event makes of a key's record: the one function that the writer uses when it appends
//! and the scan uses when it opens, so that both always agree. Pure.

use crate::engine::event::{
    Body, DoubtEvent, End, Entry, Event, GrantEvent, MovedEvent, StandingRule, Told, ToldWhat, VerdictRule,
};
use crate::engine::state::{Form, PackedRule, Record, Stored, seconds};
use crate::outcome::Kind;

/// The record after `entry`, which stands at `sequence`. `None` where the event begins nothing and
/// there is no record: a leftover of a key that was forgotten or moved.
pub(crate) fn apply(record: Option<Record>, sequence: u64, entry: &Entry) -> Option<Record> {
    let Entry { head, event } = entry;
    let since_s = seconds(head.wall_ms);
    let next = |record: Record| Record { last: sequence, rows: record.rows.saturating_add(1), ..record };
    match event {
        Event::Session(_) | Event::Adopted(_) | Event::Cell(_) | Event::Approval(_) => record,
        Event::Grant(grant) => {
            let rows = if head.prev == 0 { 1 } else { record?.rows.saturating_add(1) };
            Some(Record { last: sequence, rows, since_s, ..granted(grant, head.token) })
        }
        Event::Moved(moved) => Some(Record { last: sequence, ..whole(moved, head.token) }),
        Event::Renew(renew) => record.map(|record| Record { at: renew.lease_until_ms, ..next(record) }),
        Event::Settle(settle) => record.map(|record| Record {
            standing: ended(settle.end),
            at: head.late_ms,
            since_s,
            ..with_body(next(record), &settle.body, sequence)
        }),
        Event::Release(_) => record.map(|record| vacant(next(record), head.late_ms, since_s)),
        Event::Doubt(DoubtEvent { reason, .. }) => record.map(|record| Record {
            standing: Stored::Uncertain(*reason),
            at: head.late_ms,
            since_s,
            ..next(record)
        }),
        Event::Resolve(resolve) => record.map(|record| {
            let decided = |standing| Record {
                standing,
                at: head.late_ms,
                since_s,
                ..with_body(next(record), &resolve.body, sequence)
            };
            match resolve.verdict {
                VerdictRule::Done => decided(Stored::Done),
                VerdictRule::Failed => decided(Stored::Failed),
                VerdictRule::NotDone => vacant(next(record), head.late_ms, since_s),
            }
        }),
        Event::Late(_) => record.map(next),
    }
}

fn granted(grant: &GrantEvent, token: u64) -> Record {
    Record {
        fingerprint: grant.fingerprint,
        token,
        last: 0,
        at: grant.lease_until_ms,
        link: grant.session,
        first_attempt_s: seconds(grant.first_attempt_ms),
        attempt: grant.attempt,
        body_len: 0,
        keep_s: grant.terms.keep_s,
        remember_s: grant.terms.remember_s,
        since_s: 0,
        rule: PackedRule::new(grant.terms.recovery),
        standing: Stored::InProgress,
        form: Form::new(Kind::Json, false),
        rows: 1,
    }
}

fn whole(moved: &MovedEvent, token: u64) -> Record {
    let record = Record { at: moved.at_ms, since_s: seconds(moved.since_ms), ..granted(&moved.grant, token) };
    match moved.standing {
        StandingRule::Vacant => vacant(record, moved.at_ms, record.since_s),
        StandingRule::InProgress => record,
        StandingRule::Done => Record { standing: Stored::Done, ..with_body(record, &moved.body, 0) },
        StandingRule::Failed => Record { standing: Stored::Failed, ..with_body(record, &moved.body, 0) },
        StandingRule::Uncertain(reason) => Record { standing: Stored::Uncertain(reason), ..record },
    }
}

fn ended(end: End) -> Stored {
    match end {
        End::Done => Stored::Done,
        End::Failed => Stored::Failed,
    }
}

fn vacant(record: Record, late_ms: u64, since_s: u32) -> Record {
    Record { standing: Stored::Vacant, at: late_ms, link: 0, body_len: 0, since_s, ..record }
}

fn with_body(record: Record, body: &Body, sequence: u64) -> Record {
    Record {
        link: body.row(sequence).unwrap_or(0),
        body_len: u32::try_from(body.len).unwrap_or(u32::MAX),
        form: Form::new(body.kind, body.error),
        ..record
    }
}

/// The event as a line of the key's history; `None` for what is no line of it.
pub(crate) fn told(sequence: u64, entry: &Entry) -> Option<Told> {
    let line = |what, by: &str, why: &str, body: Option<Body>| {
        Some(Told {
            token: entry.head.token,
            what,
            wall_ms: entry.head.wall_ms,
            by: by.to_owned(),
            why: why.to_owned(),
            body: body.map(|body| placed(body, sequence)),
        })
    };
    match &entry.event {
        Event::Session(_) | Event::Adopted(_) | Event::Moved(_) | Event::Cell(_) | Event::Approval(_) => None,
        Event::Grant(_) => line(ToldWhat::Granted, "", "", None),
        Event::Renew(_) => line(ToldWhat::Renewed, "", "", None),
        Event::Settle(event) => match event.end {
            End::Done => line(ToldWhat::Done, "", "", Some(event.body)),
            End::Failed => line(ToldWhat::Failed, "", "", Some(event.body)),
        },
        Event::Release(event) => line(ToldWhat::Released, "", &event.why, None),
        Event::Doubt(event) => line(ToldWhat::Uncertain(event.reason), "", &event.why, None),
        Event::Resolve(event) => match event.verdict {
            VerdictRule::Done => line(ToldWhat::ResolvedDone, &event.by, &event.why, Some(event.body)),
            VerdictRule::Failed => line(ToldWhat::ResolvedFailed, &event.by, &event.why, Some(event.body)),
            VerdictRule::NotDone => line(ToldWhat::ResolvedNotDone, &event.by, &event.why, None),
        },
        Event::Late(event) => match event.end {
            Some(End::Done) => line(ToldWhat::LateDone, "", "", Some(event.body)),
            Some(End::Failed) => line(ToldWhat::LateFailed, "", "", Some(event.body)),
            None => line(ToldWhat::LateReleased, "", "", None),
        },
    }
}

/// A body that names its row, wherever the event that states it goes.
pub(crate) fn placed(body: Body, sequence: u64) -> Body {
    let place = body.row(sequence).map_or(crate::engine::event::Place::Nowhere, crate::engine::event::Place::At);
    Body { place, ..body }
}

#[cfg(test)]
mod tests;
