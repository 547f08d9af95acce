//! A ledger file that somebody else holds, and waiting for another holder.

use onceledger::{Key, Ledger, Options, Scope, View};

use crate::support::{EFFECT, Place, until};

fn key(part: &str) -> Key {
    Key::action(&Scope::new("default").unwrap(), "job", [part]).unwrap()
}

#[test]
fn a_file_that_another_process_holds_is_refused_with_its_process_id() {
    let place = Place::with_ledger();
    let held = Ledger::open(place.path("l.redb")).unwrap();
    let holder = format!("held by process {}", std::process::id());
    place.run("a", "--lock-wait 0s", EFFECT).code(69).says(&holder).says("l.redb");
    for command in ["stats", "verify", "sweep", "list"] {
        place.once(&[command, "--ledger", "l.redb", "--lock-wait", "1ms"]).code(69).says(&holder);
    }
    let waiting = place.start("a", "--lock-wait 100s", EFFECT);
    held.close().unwrap();
    waiting.finish().code(0).prints("effect\n");
}

#[test]
fn a_file_held_when_the_program_ends_loses_no_outcome_the_holder_records_it() {
    let place = Place::with_ledger();
    for (key_part, options, script, code, standing) in [
        ("done", "--lock-wait 20ms", EFFECT, 0, "done"),
        ("final", "--lock-wait 20ms --final 5", "echo no; exit 5", 5, "failed"),
        ("free", "--lock-wait 20ms --not-applied 6", "exit 6", 6, "vacant"),
        ("doubt", "--lock-wait 20ms", "exit 7", 76, "uncertain"),
    ] {
        let running = place.stopped_at("after-exit", key_part, options, script);
        let held = Ledger::open(place.path("l.redb")).unwrap();
        assert!(matches!(held.check(&key(key_part)).unwrap(), View::InProgress(_)));
        place.go_on();
        running.finish().code(code).says("The outcome is in the session file");
        let detail = held.show(&key(key_part)).unwrap().unwrap();
        assert_eq!(detail.view.standing().name(), standing);
        held.close().unwrap();
        let expected = if standing == "vacant" || standing == "uncertain" { None } else { Some(code) };
        assert_eq!(detail.exit_code, expected);
    }
    assert_eq!(place.effects(), 1);
    place.run("done", "", EFFECT).code(0).prints("effect\n").says("repeat");
    place.run("final", "", EFFECT).code(5).prints("no\n").says("repeat");
    assert_eq!(place.effects(), 1);
}

/// A resend that was not applied says nothing of the attempt before it: whoever runs it is not told that the key is free.
#[test]
fn a_resend_that_was_not_applied_is_told_as_uncertain_also_while_the_file_is_held() {
    let place = Place::with_ledger();
    let options = "--lock-wait 20ms --not-applied 6 --recovery resend=1h --json";
    let run = |part: &str, script: &str, code: i32, standing: &str| {
        let running = place.stopped_at("after-exit", part, options, script);
        let held = Ledger::open(place.path("l.redb")).unwrap();
        place.go_on();
        let line = running.finish().code(code).json();
        assert_eq!((&line["left"], &line["standing"]), (&true.into(), &standing.into()), "{part}: {line}");
        let detail = held.show(&key(part)).unwrap().unwrap();
        assert_eq!(detail.view.standing().name(), standing, "{part}");
        held.close().unwrap();
    };
    // Again after a release: a fresh attempt.
    run("free", "exit 6", 6, "vacant");
    run("free", "exit 6", 6, "vacant");
    // Again after a doubt: a resend, and so is the one after that.
    run("doubt", "exit 7", 76, "uncertain");
    run("doubt", "exit 6", 76, "uncertain");
    run("doubt", "exit 6", 76, "uncertain");
    // Decided as not done: fresh again.
    let token = place.show("doubt")["token"].to_string();
    let decide = ["--not-done", "--by", "ana", "--why", "looked", "--token", &token, "--key", "job", "--key", "doubt"];
    place.once(&[&["resolve", "--ledger", "l.redb"][..], &decide].concat()).code(0);
    run("doubt", "exit 6", 6, "vacant");
}

#[test]
fn a_holder_that_stays_open_learns_of_a_left_outcome_by_itself() {
    let place = Place::with_ledger();
    let running = place.stopped_at("after-exit", "k", "--lock-wait 1ms", EFFECT);
    let held = Ledger::open(place.path("l.redb")).unwrap();
    place.go_on();
    running.finish().code(0);
    until("the outcome is seen", || matches!(held.check(&key("k")).unwrap(), View::Done(_)));
    held.close().unwrap();
}

#[test]
fn a_file_held_when_the_program_ends_loses_no_outcome_the_next_open_records_it() {
    let place = Place::with_ledger();
    let running = place.stopped_at("after-exit", "k", "--lock-wait 1ms --json", EFFECT);
    let held = Options::new().threads(false).open(place.path("l.redb")).unwrap();
    place.go_on();
    let line = running.finish().code(0).json();
    assert_eq!((&line["left"], &line["standing"], &line["stdout"]), (&true.into(), &"done".into(), &"effect\n".into()));
    held.close().unwrap();
    assert_eq!(place.show("k")["standing"], "done");
    place.run("k", "", EFFECT).code(0).prints("effect\n").says("repeat");
    assert_eq!(place.effects(), 1);
}

#[test]
fn run_holds_no_file_while_its_program_runs() {
    let place = Place::with_ledger();
    let script = "while [ ! -e go ]; do sleep 0.01; done; echo waited";
    let slow = place.stopped_at("after-spawn", "slow", "", script);
    let held = Ledger::open(place.path("l.redb")).unwrap();
    held.close().unwrap();
    place.run("other", "--lock-wait 0s", EFFECT).code(0);
    place.run("slow", "--lock-wait 0s", EFFECT).code(75);
    place.write("go", "");
    place.go_on();
    slow.finish().code(0).prints("waited\n");
    assert_eq!(place.effects(), 1);
}

#[test]
fn a_waiter_gets_the_first_ones_outcome_and_holds_no_file_meanwhile() {
    let place = Place::with_ledger();
    let script = "while [ ! -e go ]; do sleep 0.01; done; echo effect | tee -a effects.log";
    let first = place.stopped_at("after-spawn", "k", "", script);
    let waiters: Vec<_> = (0..3).map(|_| place.start("k", "--wait 100s", script)).collect();
    // They all wait: none holds the file, none ends.
    std::thread::sleep(std::time::Duration::from_millis(300));
    place.run("other", "", "true").code(0);
    place.write("go", "");
    place.go_on();
    first.finish().code(0).prints("effect\n");
    for waiter in waiters {
        waiter.finish().code(0).prints("effect\n").says("repeat");
    }
    assert_eq!(place.effects(), 1);
}

#[test]
fn a_waiter_opens_for_an_outcome_that_was_left_while_its_holder_lives_on() {
    let place = Place::with_ledger();
    let first = place.stopped_at("after-leave", "k", "", EFFECT);
    place.run("k", "--wait 100s", EFFECT).code(0).prints("effect\n").says("repeat");
    place.go_on();
    first.finish().code(0);
    assert_eq!(place.effects(), 1);
    assert_eq!(place.events("k"), ["granted", "done"]);
}

#[test]
fn a_waiter_hears_of_a_death_a_release_a_lapse_and_of_its_own_end() {
    let place = Place::with_ledger();
    let dead = place.stopped_at("before-spawn", "dead", "", EFFECT);
    let waiter = place.start("dead", "--wait 100s", EFFECT);
    dead.kill();
    waiter.finish().code(76).says("holder_gone");
    std::fs::remove_file(place.path("stopped")).unwrap();

    let free = place.stopped_at("after-spawn", "free", "--not-applied 3", "exit 3");
    let waiter = place.start("free", "--wait 100s", EFFECT);
    place.go_on();
    free.finish().code(3);
    waiter.finish().code(0).prints("effect\n");

    let slow = place.stopped_at("after-spawn", "slow", "--lease 200ms", "true");
    place.run("slow", "--wait 100s", EFFECT).code(76).says("lapsed");
    place.go_on();
    slow.finish().code(0);

    let slow = place.stopped_at("after-spawn", "short", "", "true");
    place.run("short", "--wait 50ms", EFFECT).code(75);
    place.run("short", "--wait 0s", EFFECT).code(75);
    place.go_on();
    slow.finish().code(0);
    assert_eq!(place.effects(), 1);
}
