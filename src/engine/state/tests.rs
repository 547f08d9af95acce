//! Every combination of standing, ask, holder and time, against a table that is written from the documents and shares
//! no code with the one it checks.

use super::*;

const ME: [u8; 32] = [1; 32];
const OTHER: [u8; 32] = [2; 32];
const TOKEN: u64 = 50;
const FIRST_S: u32 = 100;
const NOW_MS: u64 = 1_000_000;

/// What a key has been through, in words of the documents.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Never,
    /// Settled or released, and its retention has passed.
    Forgotten(Stored),
    Vacant,
    Held,
    /// In progress, its lease has passed.
    Lapsed,
    Doubt(Reason),
    Done {
        kept: bool,
    },
    Failed {
        kept: bool,
    },
}

fn lives() -> Vec<Life> {
    let mut lives = vec![Life::Never, Life::Vacant, Life::Held, Life::Lapsed];
    for kept in [false, true] {
        lives.extend([Life::Done { kept }, Life::Failed { kept }]);
    }
    for standing in [Stored::Vacant, Stored::Done, Stored::Failed] {
        lives.push(Life::Forgotten(standing));
    }
    let reasons = [Reason::Dropped, Reason::Panicked, Reason::UnknownError, Reason::HolderGone, Reason::Lapsed];
    lives.extend(reasons.map(Life::Doubt));
    lives
}

/// The record of a life, at each of the moments that make it that life: just at its border, and far from it.
fn records(life: Life, rule: RecoveryRule) -> Vec<Option<Record>> {
    let record = |standing, at, link, keep_s, remember_s| {
        Some(Record {
            fingerprint: ME,
            token: TOKEN,
            last: 70,
            at,
            link,
            first_attempt_s: FIRST_S,
            attempt: 3,
            body_len: 4,
            keep_s,
            remember_s,
            since_s: 9,
            rule: PackedRule::new(rule),
            standing,
            form: Form::new(Kind::Text, false),
            rows: 5,
        })
    };
    const EVER: u32 = u32::MAX;
    match life {
        Life::Never => vec![None],
        // In progress, `at` is the lease; otherwise the moment of the settle, and 10 s of retention.
        Life::Held => vec![
            record(Stored::InProgress, NOW_MS + 1, 7, EVER, EVER),
            record(Stored::InProgress, u64::MAX, 7, 0, 1),
            record(Stored::InProgress, u64::MAX - 1, 7, 0, 1),
        ],
        Life::Lapsed => vec![record(Stored::InProgress, NOW_MS, 7, EVER, EVER), record(Stored::InProgress, 0, 7, 0, 1)],
        Life::Doubt(reason) => vec![
            record(Stored::Uncertain(reason), 0, 7, 0, 1),
            record(Stored::Uncertain(reason), NOW_MS, 7, EVER, EVER),
        ],
        Life::Vacant => vec![
            record(Stored::Vacant, NOW_MS - 9_999, 0, 1, 10),
            record(Stored::Vacant, 0, 0, 0, EVER),
            record(Stored::Vacant, u64::MAX, 0, 0, 1),
        ],
        Life::Forgotten(standing) => {
            vec![record(standing, NOW_MS - 10_000, 7, EVER, 10), record(standing, 0, 7, 10, 10)]
        }
        Life::Done { kept } | Life::Failed { kept } => {
            let standing = if matches!(life, Life::Done { .. }) { Stored::Done } else { Stored::Failed };
            if kept {
                vec![
                    record(standing, NOW_MS - 9_999, 7, 10, 10),
                    record(standing, 0, 7, EVER, EVER),
                    record(standing, u64::MAX - 5, 7, 10, 10),
                ]
            } else {
                vec![
                    record(standing, NOW_MS - 9_999, 7, 9, 10),
                    record(standing, NOW_MS - 9_000, 7, 9, 10),
                    record(standing, NOW_MS, 0, 10, 10),
                    record(standing, 0, 7, 0, EVER),
                ]
            }
        }
    }
}

/// What a caller sees of a life.
fn view(life: Life, holder: Holder) -> Seen {
    match (life, holder) {
        (Life::Never | Life::Forgotten(_) | Life::Vacant, _) => Seen::Vacant,
        (Life::Held | Life::Lapsed, Holder::Gone) => Seen::Uncertain(Reason::HolderGone),
        (Life::Held, Holder::Alive | Holder::Unknown) => Seen::InProgress,
        (Life::Lapsed, Holder::Alive | Holder::Unknown) => Seen::Uncertain(Reason::Lapsed),
        (Life::Doubt(reason), _) => Seen::Uncertain(reason),
        (Life::Done { kept }, _) => Seen::Done { kept },
        (Life::Failed { kept }, _) => Seen::Failed { kept },
    }
}

const RULES: [RecoveryRule; 5] = [
    RecoveryRule::Hold,
    RecoveryRule::Reconcile,
    RecoveryRule::Resend(1),
    // The window ends exactly now, and a second later.
    RecoveryRule::Resend((NOW_MS / 1000) as u32 - FIRST_S),
    RecoveryRule::Resend((NOW_MS / 1000) as u32 - FIRST_S + 1),
];

const PROBES: [Probe; 4] = [
    Probe::None,
    Probe::Ready { not_before: 0 },
    Probe::Ready { not_before: NOW_MS },
    Probe::Ready { not_before: NOW_MS + 1 },
];

/// The strictness of a rule: what it lets happen after a crash, as a number.
fn laxness(rule: RecoveryRule) -> u64 {
    match rule {
        RecoveryRule::Hold => 0,
        RecoveryRule::Reconcile => 1,
        RecoveryRule::Resend(window_s) => 2 + u64::from(window_s),
    }
}

fn claimed(
    life: Life,
    holder: Holder,
    same: bool,
    stored: RecoveryRule,
    asked: RecoveryRule,
    probe: Probe,
) -> Decision {
    let seen = view(life, holder);
    let again = |resumed| Decision::Grant { attempt: 4, first_attempt_s: FIRST_S, fresh: false, resumed };
    match life {
        Life::Never | Life::Forgotten(_) => {
            return Decision::Grant { attempt: 1, first_attempt_s: 1000, fresh: true, resumed: false };
        }
        Life::Vacant => return again(false),
        _ if !same => return Decision::Mismatch,
        _ => {}
    }
    let gone = matches!(seen, Seen::Uncertain(reason) if reason != Reason::Lapsed);
    if !gone {
        return Decision::Stands(seen);
    }
    let binding = if laxness(asked) < laxness(stored) { asked } else { stored };
    match binding {
        RecoveryRule::Resend(window_s) if NOW_MS < (u64::from(FIRST_S) + u64::from(window_s)) * 1000 => again(true),
        RecoveryRule::Reconcile if matches!(probe, Probe::Ready { not_before } if not_before <= NOW_MS) => {
            Decision::Probe
        }
        RecoveryRule::Hold | RecoveryRule::Reconcile | RecoveryRule::Resend(_) => Decision::Stands(seen),
    }
}

/// What a holder may still do with the claim that its token names.
fn held_by(life: Life, token: u64, mine: impl FnOnce() -> Decision) -> Decision {
    match life {
        Life::Never | Life::Forgotten(_) => Decision::NoSuchGrant,
        _ if token < TOKEN => Decision::Lost,
        _ if token > TOKEN => Decision::NoSuchGrant,
        _ => mine(),
    }
}

fn is_open(life: Life) -> bool {
    matches!(life, Life::Held | Life::Lapsed | Life::Doubt(_))
}

fn expected(life: Life, holder: Holder, stored: RecoveryRule, ask: &Ask) -> Decision {
    match *ask {
        Ask::Claim { fingerprint, rule, probe } => claimed(life, holder, fingerprint == ME, stored, rule, probe),
        Ask::Settle { token, equal } => held_by(life, token, || match life {
            _ if is_open(life) => Decision::Apply,
            Life::Done { .. } | Life::Failed { .. } if equal => Decision::Same,
            _ => Decision::Lost,
        }),
        Ask::Renew { token } => held_by(life, token, || match life {
            Life::Held | Life::Lapsed => Decision::Apply,
            _ => Decision::Lost,
        }),
        Ask::Release { token } => held_by(life, token, || match life {
            _ if is_open(life) => Decision::Apply,
            Life::Vacant => Decision::Same,
            _ => Decision::Lost,
        }),
        Ask::Doubt { token } => held_by(life, token, || match life {
            Life::Held | Life::Lapsed => Decision::Apply,
            Life::Doubt(_) => Decision::Same,
            _ => Decision::Lost,
        }),
        Ask::Resolve { token, force, verdict: _ } => {
            let seen = view(life, holder);
            let mine = token == TOKEN && !matches!(life, Life::Never | Life::Forgotten(_));
            match seen {
                Seen::Uncertain(_) if mine => Decision::Apply,
                Seen::InProgress if mine && force => Decision::Apply,
                _ => Decision::Stands(seen),
            }
        }
    }
}

fn asks() -> Vec<Ask> {
    let mut asks = Vec::new();
    for fingerprint in [ME, OTHER] {
        for rule in RULES {
            asks.extend(PROBES.map(|probe| Ask::Claim { fingerprint, rule, probe }));
        }
    }
    for token in [0, TOKEN - 1, TOKEN, TOKEN + 1, u64::MAX] {
        asks.extend([false, true].map(|equal| Ask::Settle { token, equal }));
        asks.extend([Ask::Renew { token }, Ask::Release { token }, Ask::Doubt { token }]);
        for verdict in [VerdictRule::Done, VerdictRule::Failed, VerdictRule::NotDone] {
            asks.extend([false, true].map(|force| Ask::Resolve { token, verdict, force }));
        }
    }
    asks
}

#[test]
fn every_combination_is_as_the_independent_table_has_it() {
    // Late time is what ends retention, early time what ends leases and windows: they may be apart, but each case is
    // at the same number here, so that a mix-up of the two is caught by the test after this one.
    let now = Now { early: NOW_MS, late: NOW_MS, late_up: NOW_MS, wall: 0 };
    let mut count = 0_u64;
    for life in lives() {
        for stored in RULES {
            for record in records(life, stored) {
                for holder in [Holder::Alive, Holder::Gone, Holder::Unknown] {
                    if let Some(record) = &record {
                        assert_eq!(record.seen(now, holder), view(life, holder), "{life:?}, {holder:?}, {record:?}");
                    }
                    for ask in asks() {
                        let told = decide(record.as_ref(), &ask, now, holder);
                        let wanted = expected(life, holder, stored, &ask);
                        assert_eq!(told, wanted, "{life:?}, stored {stored:?}, holder {holder:?}, {ask:?}, {record:?}");
                        count += 1;
                    }
                }
            }
        }
    }
    println!("{count} combinations");
    assert!(count > 40_000, "{count}");
}

/// P11: leases and windows go by early time alone, retention and the settle delay by late time alone.
#[test]
fn each_limit_goes_by_its_own_time() {
    let far = 1_000 * NOW_MS;
    for life in lives() {
        for stored in RULES {
            for record in records(life, stored).into_iter().flatten() {
                let at = |early, late| Now { early, late, late_up: late, wall: 0 };
                let here = record.seen(at(NOW_MS, NOW_MS), Holder::Alive);
                if matches!(record.standing, Stored::InProgress) {
                    assert_eq!(record.seen(at(NOW_MS, far), Holder::Alive), here, "late time moved {life:?}");
                } else {
                    assert_eq!(record.seen(at(far, NOW_MS), Holder::Alive), here, "early time moved {life:?}");
                }
                let resend = Ask::Claim { fingerprint: ME, rule: RecoveryRule::Resend(u32::MAX), probe: Probe::None };
                if matches!(life, Life::Doubt(_)) {
                    let now = decide(Some(&record), &resend, at(NOW_MS, NOW_MS), Holder::Gone);
                    assert_eq!(decide(Some(&record), &resend, at(NOW_MS, far), Holder::Gone), now);
                    let probe = Probe::Ready { not_before: NOW_MS };
                    let ask = Ask::Claim { fingerprint: ME, rule: RecoveryRule::Reconcile, probe };
                    let now = decide(Some(&record), &ask, at(NOW_MS, NOW_MS), Holder::Gone);
                    if stored != RecoveryRule::Hold {
                        assert_eq!(decide(Some(&record), &ask, at(far, NOW_MS), Holder::Gone), now);
                        let early = decide(Some(&record), &ask, at(far, NOW_MS - 1), Holder::Gone);
                        assert!(matches!(early, Decision::Stands(_)), "{early:?}");
                    }
                }
            }
        }
    }
}

/// P2, as a statement over the whole table: whatever the time, a key that is in progress or in doubt is granted under no
/// rule but resend, and under that only to its own fingerprint, with the holder gone, inside the window.
#[test]
fn p2_no_time_alone_grants_a_key_that_was_granted() {
    let mut grants = 0;
    for early in [0, NOW_MS, 10 * NOW_MS, u64::MAX] {
        for late in [0, NOW_MS, 10 * NOW_MS, u64::MAX] {
            let now = Now { early, late, late_up: late, wall: 0 };
            for life in lives().into_iter().filter(|life| is_open(*life)) {
                for stored in RULES {
                    for record in records(life, stored) {
                        for holder in [Holder::Alive, Holder::Gone, Holder::Unknown] {
                            for ask in asks() {
                                let Ask::Claim { fingerprint, rule, .. } = ask else { continue };
                                let Decision::Grant { fresh, resumed, .. } = decide(record.as_ref(), &ask, now, holder)
                                else {
                                    continue;
                                };
                                grants += 1;
                                assert!(!fresh && resumed && fingerprint == ME);
                                let window = |rule| matches!(rule, RecoveryRule::Resend(_));
                                assert!(window(rule) && window(stored), "{rule:?} under {stored:?}");
                                let gone = matches!(life, Life::Doubt(reason) if reason != Reason::Lapsed);
                                assert!(gone || holder == Holder::Gone, "{life:?}, {holder:?}");
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(grants > 0);
}

/// A record survives its way into atomics and back.
#[test]
fn a_record_is_the_same_after_its_words() {
    for life in lives() {
        for stored in RULES {
            for record in records(life, stored).into_iter().flatten() {
                assert_eq!(Record::from_words(record.to_words()), record);
                let marked = Record { form: record.form.marked(), rows: u16::MAX, ..record };
                assert_eq!(Record::from_words(marked.to_words()), marked);
                assert_eq!(marked.form.kind(), record.form.kind());
                assert_eq!(marked.form.is_error(), record.form.is_error());
                assert!(marked.form.is_marked() && !marked.form.unmarked().is_marked());
            }
        }
    }
    for kind in [Kind::Json, Kind::Text, Kind::Binary] {
        for error in [false, true] {
            let form = Form::new(kind, error);
            assert_eq!((form.kind(), form.is_error(), form.is_marked()), (kind, error, false));
        }
    }
    for rule in RULES {
        assert_eq!(PackedRule::new(rule).rule(), rule);
    }
    assert_eq!(PackedRule::new(RecoveryRule::Resend(0)).rule(), RecoveryRule::Hold);
    assert_eq!(PackedRule::new(RecoveryRule::Resend(u32::MAX)).rule(), RecoveryRule::Resend(u32::MAX - 1));
}

#[test]
fn a_form_is_one_byte_and_a_mark_comes_and_goes() {
    for kind in [Kind::Json, Kind::Text, Kind::Binary] {
        for error in [false, true] {
            let form = Form::new(kind, error);
            let marked = form.marked().marked();
            assert_eq!((marked.is_marked(), form.is_marked(), marked.unmarked()), (true, false, form));
            for form in [form, marked] {
                assert_eq!((form.kind(), form.is_error(), Form::from_code(form.code())), (kind, error, form));
            }
        }
    }
}
