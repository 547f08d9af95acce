//! Ctrl-C and TERM.

use crate::support::{EFFECT, Place, until};

/// Whether the tests themselves were started with a signal ignored, as a shell starts what it puts into
/// the background. What they start inherits that, and no signal of that name reaches it: nothing to test.
fn is_ignored(name: &str) -> bool {
    let number = match name {
        "HUP" => 1,
        "INT" => 2,
        _ => 15,
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    let ignored = u64::from_str_radix(mask.trim(), 16).unwrap_or(0) >> (number - 1) & 1 == 1;
    if ignored {
        println!("SIG{name} is ignored here: not tested");
    }
    ignored
}

#[test]
fn signals_reach_the_program_and_leave_an_uncertain_claim() {
    for name in ["INT", "TERM", "HUP"].into_iter().filter(|name| !is_ignored(name)) {
        let place = Place::with_ledger();
        let script = "echo effect >> effects.log; touch begun; exec sleep 600";
        let running = place.start("k", "", script);
        until("the program", || place.path("begun").exists());
        running.signal(name);
        running.finish().code(76).says("signal");
        place.run("k", "", EFFECT).code(76).says("unknown_error");
        assert_eq!(place.effects(), 1, "{name}");
        assert_eq!(place.events("k"), ["granted", "uncertain"]);
    }
}

#[test]
fn a_program_that_cleans_up_after_a_signal_and_exits_0_is_done() {
    let place = Place::with_ledger();
    let script = "trap 'echo cleaned; exit 0' TERM; touch begun; while :; do sleep 0.01; done";
    let running = place.start("k", "", script);
    until("the program", || place.path("begun").exists());
    running.signal("TERM");
    running.finish().code(0).prints("cleaned\n");
    assert_eq!(place.show("k")["standing"], "done");
}

#[test]
fn a_signal_before_the_program_began_gives_the_key_back() {
    for point in ["after-claim", "after-close", "before-spawn"] {
        let place = Place::with_ledger();
        let running = place.stopped_at(point, "k", "", EFFECT);
        running.signal("TERM");
        // The signal is noted by another thread; give the kernel the time to deliver it.
        std::thread::sleep(std::time::Duration::from_millis(200));
        place.go_on();
        let said = running.finish();
        assert_eq!(said.signal, Some(15), "{said:?}");
        assert_eq!(place.effects(), 0);
        assert_eq!(place.show("k")["standing"], "vacant", "{point}");
        place.run("k", "", EFFECT).code(0);
    }
}

#[test]
fn a_signal_while_waiting_ends_run_and_changes_nothing() {
    if is_ignored("INT") {
        return;
    }
    let place = Place::with_ledger();
    let first = place.stopped_at("after-spawn", "k", "", EFFECT);
    let waiter = place.start("k", "--wait 100s", EFFECT);
    std::thread::sleep(std::time::Duration::from_millis(300));
    waiter.signal("INT");
    assert_eq!(waiter.finish().signal, Some(2));
    place.go_on();
    first.finish().code(0);
    assert_eq!(place.events("k"), ["granted", "done"]);
}

#[test]
fn a_signal_that_run_was_told_to_ignore_stays_ignored() {
    let place = Place::with_ledger();
    let binary = crate::support::binary();
    let script = format!(
        "trap '' HUP; exec {binary} run --ledger l.redb --key job --key k -- sh -c 'touch begun; sleep 1; echo lived'"
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).current_dir(place.folder());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let running = crate::support::Running(command.spawn().unwrap());
    until("the program", || place.path("begun").exists());
    running.signal("HUP");
    running.finish().code(0).prints("lived\n");
}

/// Runs a program under `run` at a terminal, and types Ctrl-C once it has begun. `go` ends it.
fn with_ctrl_c(place: &Place, program: &str) {
    let binary = crate::support::binary();
    let job = format!("{binary} run --ledger l.redb --key job --key k -- {program}");
    let mut command = std::process::Command::new("script");
    // `script` makes a terminal, and what it reads is what is typed there.
    command.args(["-qefc", &job, "/dev/null"]).current_dir(place.folder());
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("script(1), of util-linux");
    let mut typed = child.stdin.take().unwrap();
    until("the program", || place.path("begun").exists());
    std::io::Write::write_all(&mut typed, b"\x03").unwrap();
    // A signal that must not come cannot be waited for.
    std::thread::sleep(std::time::Duration::from_millis(300));
    place.write("go", "");
    crate::support::Running(child).finish();
    drop(typed);
}

const COUNTS: &str =
    "sh -c 'trap \"echo int >> effects.log\" INT; touch begun; while [ ! -e go ]; do sleep 0.02; done'";

#[test]
fn ctrl_c_at_a_terminal_reaches_the_program() {
    if is_ignored("INT") {
        return;
    }
    let place = Place::with_ledger();
    with_ctrl_c(&place, COUNTS);
    assert_eq!(place.effects(), 1);
    assert_eq!(place.show("k")["standing"], "done");
}

#[test]
fn ctrl_c_at_a_terminal_is_not_passed_on_a_second_time() {
    if is_ignored("INT") {
        return;
    }
    let place = Place::with_ledger();
    // In a session of its own the program gets nothing from the terminal: what came was passed on.
    with_ctrl_c(&place, &format!("setsid {COUNTS}"));
    assert_eq!(place.effects(), 0);
    assert_eq!(place.show("k")["standing"], "done");
}
