//! `kill -9` at every point of `run`, then again: never a second effect, and the answer is exact.

use crate::support::{EFFECT, Place, until};

/// A program that says that it runs, waits for the file `go`, has its effect, and writes to no pipe.
const PATIENT: &str = "echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; echo effect >> effects.log";

#[test]
fn killed_before_the_program_the_claim_is_uncertain_and_nothing_ran() {
    for point in ["after-claim", "after-close", "before-spawn"] {
        let place = Place::with_ledger();
        place.stopped_at(point, "k", "", EFFECT).kill();
        place.run("k", "", EFFECT).code(76).says("holder_gone");
        place.run("k", "", EFFECT).code(76);
        assert_eq!(place.effects(), 0, "{point}");
        assert_eq!(place.events("k"), ["granted", "uncertain"], "{point}");
    }
}

#[test]
fn killed_with_its_program_the_claim_is_uncertain() {
    let place = Place::with_ledger();
    let running = place.start("k", "", "echo effect >> effects.log; echo $$ > pid; exec sleep 600");
    until("the program", || std::fs::read_to_string(place.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    running.kill();
    crate::support::signal(place.read("pid").trim().parse().unwrap(), "KILL");
    until("the program is gone", || place.show("k")["standing"] == "uncertain");
    place.run("k", "", EFFECT).code(76).says("holder_gone");
    assert_eq!(place.effects(), 1);
}

#[test]
fn killed_alone_the_claim_is_in_progress_until_the_program_ends_and_uncertain_then() {
    for point in ["", "after-spawn"] {
        let place = Place::with_ledger();
        let running =
            if point.is_empty() { place.start("k", "", PATIENT) } else { place.stopped_at(point, "k", "", PATIENT) };
        until("the program", || std::fs::read_to_string(place.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
        running.kill();
        for _ in 0..3 {
            place.run("k", "", EFFECT).code(75).says("in progress");
            assert_eq!(place.show("k")["standing"], "in_progress");
        }
        place.write("go", "");
        until("the program ends", || place.effects() == 1 && place.show("k")["standing"] == "uncertain");
        place.run("k", "", EFFECT).code(76);
        assert_eq!(place.effects(), 1);
    }
}

#[test]
fn killed_after_the_program_but_before_its_outcome_was_written_the_claim_is_uncertain() {
    let place = Place::with_ledger();
    place.stopped_at("after-exit", "k", "", EFFECT).kill();
    place.run("k", "", EFFECT).code(76);
    assert_eq!(place.effects(), 1);
}

#[test]
fn killed_after_its_outcome_was_written_the_claim_is_done() {
    for point in ["after-leave", "before-settle", "after-settle"] {
        let place = Place::with_ledger();
        place.stopped_at(point, "k", "", EFFECT).kill();
        place.run("k", "", EFFECT).code(0).prints("effect\n").says("repeat");
        assert_eq!(place.effects(), 1, "{point}");
        assert_eq!(place.events("k"), ["granted", "done"], "{point}");
    }
}

#[test]
fn killed_after_a_release_was_written_the_key_is_free() {
    let place = Place::with_ledger();
    place.stopped_at("after-leave", "k", "--not-applied 7", "exit 7").kill();
    place.run("k", "", EFFECT).code(0).prints("effect\n");
    assert_eq!(place.events("k"), ["granted", "released", "granted", "done"]);
}

#[test]
fn the_files_of_dead_sessions_are_removed() {
    let place = Place::with_ledger();
    for point in ["after-close", "after-exit", "after-leave"] {
        place.stopped_at(point, point, "", "true").kill();
        std::fs::remove_file(place.path("stopped")).unwrap();
    }
    place.run("other", "", "true").code(0);
    place.once(&["stats", "--ledger", "l.redb"]).code(0);
    assert_eq!(std::fs::read_dir(place.path("l.redb.sessions")).unwrap().count(), 0);
}

#[test]
fn a_lease_ends_a_claim_whose_program_runs_on_and_its_late_outcome_still_counts() {
    let place = Place::with_ledger();
    let running = place.stopped_at("after-spawn", "k", "--lease 1ms", EFFECT);
    until("the lease is over", || place.show("k")["standing"] == "uncertain");
    place.run("k", "", EFFECT).code(76).says("lapsed");
    place.run("k", "--recovery resend=1h", EFFECT).code(76);
    place.go_on();
    running.finish().code(0).prints("effect\n");
    assert_eq!(place.show("k")["standing"], "done");
    assert_eq!(place.effects(), 1);
}
