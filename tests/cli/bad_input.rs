//! What bad input gets: a word that says so, an exit code, nothing written, nothing lost.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{EFFECT, Place, Running, Said, binary};

fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn usage_and_values_that_are_never_right_exit_64_and_write_nothing() {
    let place = Place::new();
    let long = "x".repeat(64 * 1024 + 1);
    let action = "x".repeat(513);
    let cases: &[(&[&str], &str)] = &[
        (&[], "no key is named"),
        (&["--key", ""], "the action is empty"),
        (&["--key", "a", "--key", ""], "the key part is empty"),
        (&["--key", &action], "513 bytes"),
        (&["--key", "a", "--key", &long], "65537 bytes"),
        (&["--key", "a", "--scope", ""], "the scope is empty"),
        (&["--key", "a", "--tool", "t"], "cannot be used with"),
        (&["--tool", "t"], "--args"),
        (&["--tool", "", "--args", "{}"], "the tool is empty"),
        (&["--tool", "t", "--args", "{", "--identity", "/a"], ""),
        (&["--tool", "t", "--args", "{}", "--identity", "/a"], "lack the identity field"),
        (&["--tool", "t", "--args", "{\"a\":1}", "--identity", "a"], ""),
        (&["--key", "a", "--args", "{\"a\":1,\"a\":2}"], "twice"),
        (&["--key", "a", "--args", "{\"a\":NaN}"], ""),
        (&["--key", "a", "--args", "'x'"], ""),
        (&["--key", "a", "--args", "\"\\ud800\""], "surrogate"),
        (&["--key", "a", "--args", ""], ""),
        (&["--key", "a", "--guard", "/a"], "--args"),
        (&["--key", "a", "--identity", "/a"], "--tool"),
        (&["--key", "a", "--lease", "0s"], "zero"),
        (&["--key", "a", "--lease", "5"], "unit"),
        (&["--key", "a", "--lease", "-5s"], ""),
        (&["--key", "a", "--lease", "99999999999999999999s"], "over the limit"),
        (&["--key", "a", "--lease", "18446744073709551615d"], "over the limit"),
        (&["--key", "a", "--keep", "36501d"], "over the limit"),
        (&["--key", "a", "--remember", "18446744073709551615ms"], "over the limit"),
        (&["--key", "a", "--remember", "0s"], "zero"),
        (&["--key", "a", "--wait", "1week"], "unit"),
        (&["--key", "a", "--recovery", "always"], "resend=DURATION"),
        (&["--key", "a", "--recovery", "resend=0s"], "zero"),
        (&["--key", "a", "--final", "0"], "0 is not in 1..=255"),
        (&["--key", "a", "--not-applied", "256"], "256 is not in 1..=255"),
        (&["--key", "a", "--final", "3", "--not-applied", "2,3"], "cannot mean both"),
        (&["--key", "a", "--nonsense"], "--nonsense"),
        (&["--key", "a", "--label", &action], "label"),
    ];
    for (options, says) in cases {
        let head = ["run", "--ledger", "new.redb", "--create"];
        let said = place.once(&[&head[..], options, &["--", "sh", "-c", EFFECT]].concat());
        assert_eq!(said.code, Some(64), "{options:.80?}: {said:?}");
        assert!(said.err.contains(says), "{options:.80?}: {says:?} is not in {}", said.err);
        if *options == ["--key", "a", "--label", &action] {
            // Checked by the claim, when the ledger is there.
            continue;
        }
        assert_eq!(names(place.folder()), Vec::<OsString>::new(), "{options:.80?} wrote something");
    }
    assert_eq!(place.effects(), 0);
    println!("{} inputs refused", cases.len());
}

#[test]
fn text_that_is_not_utf8_is_refused_where_text_is_asked() {
    let place = Place::with_ledger();
    let bad = OsString::from_vec(b"a\xff".to_vec());
    let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
    let run = |options: Vec<OsString>| {
        let all = [words(&["run", "--ledger", "l.redb"]), options, words(&["--", "true"])].concat();
        place.once(&all)
    };
    run([words(&["--key"]), vec![bad.clone()]].concat()).code(64).says("not UTF-8");
    run([words(&["--key", "a", "--scope"]), vec![bad.clone()]].concat()).code(64);
    run([words(&["--tool", "a", "--args"]), vec![bad.clone()]].concat()).code(64);
    // What an action acts on may be any bytes.
    run([words(&["--key", "a", "--key"]), vec![bad]].concat()).code(0);
}

#[test]
fn other_commands_refuse_what_is_never_right() {
    let place = Place::with_ledger();
    let cases: &[(&[&str], &str)] = &[
        (&["list", "--ledger", "l.redb", "--standing", "lost"], "\"lost\" is not a standing"),
        (&["show", "--ledger", "l.redb", "abc"], "64 hex digits"),
        (&["show", "--ledger", "l.redb"], "no key is named"),
        (&["history", "--ledger", "l.redb", "--key", ""], "empty"),
        (&["resolve", "--ledger", "l.redb", "--key", "a", "--token", "1", "--by", "x", "--why", "y"], "--done"),
        (
            &["resolve", "--ledger", "l.redb", "--key", "a", "--token", "x", "--done", "--by", "x", "--why", "y"],
            "--token",
        ),
        (
            &["resolve", "--ledger", "l.redb", "--key", "a", "--token", "1", "--done", "--by", "", "--why", "y"],
            "`by` is empty",
        ),
        (
            &[
                "resolve", "--ledger", "l.redb", "--key", "a", "--token", "1", "--done", "--failed", "--by", "x",
                "--why", "y",
            ],
            "cannot be used",
        ),
        (
            &[
                "resolve",
                "--ledger",
                "l.redb",
                "--key",
                "a",
                "--token",
                "1",
                "--done",
                "--outcome",
                "none",
                "--by",
                "x",
                "--why",
                "y",
            ],
            "none",
        ),
        (&["sweep", "--ledger", "l.redb", "--limit", "0"], "0"),
        (&["adopt", "--ledger", "l.redb", "--by", " ", "--why", "y"], "`by` is empty"),
        (&["nonsense"], "nonsense"),
        (&[], "Usage"),
        (&["run", "--ledger", "l.redb", "--key", "a"], "PROGRAM"),
        (&["run", "--key", "a", "--", "true"], "--ledger"),
    ];
    for (arguments, says) in cases {
        let said = place.once(arguments).code(64);
        assert!(said.err.contains(says), "{arguments:?}: {says:?} is not in {}", said.err);
    }
    let stale = ["resolve", "--ledger", "l.redb", "--key", "a", "--token", "1", "--done", "--by", "x", "--why", "y"];
    place.once(&stale).code(65).says("stale").says("nothing is known of it");
}

#[test]
fn files_that_are_no_ledgers_are_refused_and_left_as_they_are() {
    let place = Place::with_ledger();
    place.run("a", "", "true").code(0);
    let whole = std::fs::read(place.path("l.redb")).unwrap();
    place.write("text.redb", "this is a letter, and nobody wants it changed");
    place.write("empty.redb", "");
    place.write("half.redb", &whole[..whole.len() / 2]);
    std::fs::create_dir(place.path("folder.redb")).unwrap();
    let cases = [
        ("text.redb", "is not a ledger"),
        ("empty.redb", "is not a ledger"),
        ("half.redb", "no anchor"),
        ("folder.redb", "is not a file"),
    ];
    for (name, says) in cases {
        let before = std::fs::read(place.path(name)).ok();
        for create in [&["--create"][..], &[]] {
            let job = [&["run", "--ledger", name, "--key", "a"][..], create, &["--", "sh", "-c", EFFECT]].concat();
            place.once(&job).code(69).says(says).says(name);
        }
        place.once(&["stats", "--ledger", name]).code(69);
        place.once(&["init", "--ledger", name]).code(69);
        assert_eq!(std::fs::read(place.path(name)).ok(), before, "{name} was changed");
    }
    // Half a ledger with its anchor.
    place.write("l.redb", &whole[..whole.len() / 2]);
    place.run("a", "", EFFECT).code(69);
    place.write("l.redb", "");
    place.run("a", "", EFFECT).code(69).says("emptied or overwritten");
    std::fs::remove_file(place.path("l.redb")).unwrap();
    place.run("a", "--create", EFFECT).code(69).says("is gone");
    place.write("l.redb", &whole);
    place.run("a", "", EFFECT).code(0).says("repeat");
    assert_eq!(place.effects(), 0);
}

/// Runs the binary as somebody who may not write what is read-only.
fn as_nobody(place: &Place, arguments: &[&str]) -> Said {
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let program = place.path("bin");
    if !program.exists() {
        std::fs::copy(binary(), &program).unwrap();
    }
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if root {
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
    }
    Running(command.spawn().unwrap()).finish()
}

#[test]
fn a_read_only_ledger_is_refused() {
    let place = Place::with_ledger();
    place.run("before", "", "true").code(0);
    let mode = |name: &str, mode: u32| {
        std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["l.redb", "l.redb.lock", "l.redb.anchor"] {
        mode(name, 0o444);
    }
    mode("l.redb.sessions", 0o555);
    mode("", 0o555);
    let job = ["run", "--ledger", "l.redb", "--key", "a", "--", "sh", "-c", EFFECT];
    as_nobody_ready(&place);
    as_nobody(&place, &job).code(69).says("write access").says("l.redb");
    mode("", 0o777);
    for name in ["l.redb.lock", "l.redb.anchor"] {
        mode(name, 0o666);
    }
    as_nobody(&place, &job).code(69).says("write access").says("l.redb");
    assert_eq!(place.effects(), 0);
    mode("l.redb", 0o600);
    mode("l.redb.sessions", 0o700);
    place.run("a", "", EFFECT).code(0);
}

/// Puts the binary in place while the folder can be written.
fn as_nobody_ready(place: &Place) {
    std::fs::set_permissions(place.folder(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::copy(binary(), place.path("bin")).unwrap();
    std::fs::set_permissions(place.folder(), std::fs::Permissions::from_mode(0o555)).unwrap();
}

/// Runs `script` where no file may grow over `blocks` of 512 bytes: writes fail as on a full disk.
fn within(place: &Place, blocks: usize, arguments: &str) -> Said {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec {} {arguments}", binary());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(place.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running(command.spawn().unwrap()).finish()
}

#[test]
fn a_full_disk_is_refused_before_the_program_runs_and_loses_nothing() {
    let place = Place::with_ledger();
    place.run("before", "", "echo kept").code(0);
    let effect = "-- sh -c 'echo effect >> effects.log'";
    let said = within(&place, 1, &format!("run --ledger l.redb --key new {effect}")).code(69);
    assert!(said.err.contains("l.redb") || said.err.contains("storage"), "{}", said.err);
    within(&place, 1, &format!("run --ledger other.redb --create --key new {effect}")).code(69);
    assert_eq!(place.effects(), 0);
    place.run("before", "", EFFECT).code(0).prints("kept\n");
    // An interrupted creation is started over.
    place.once(&["run", "--ledger", "other.redb", "--create", "--key", "new", "--", "sh", "-c", EFFECT]).code(0);
    assert_eq!(place.effects(), 1);
}

#[test]
fn a_disk_that_fills_while_the_program_runs_never_leads_to_a_second_run() {
    let place = Place::with_ledger();
    let script = "echo effect >> effects.log; head -c 400000 /dev/zero | tr '\\0' x; exit 0";
    place.write("job.sh", script);
    let said = within(&place, 256, "run --ledger l.redb --key job --key large -- sh job.sh");
    assert_eq!(said.out.len(), 400_000, "the output is passed on: {}", said.err);
    let first = said.code(69);
    assert!(first.err.contains("do not run it again"), "{}", first.err);
    let again = place.run("large", "", EFFECT);
    assert!(matches!(again.code, Some(0 | 76)), "{again:?}");
    assert_eq!(place.effects(), 1);
}

#[test]
fn a_tiny_full_file_system_is_refused() {
    let place = Place::new();
    let disk = place.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&disk).stderr(Stdio::null()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("no tmpfs may be mounted here: skipped");
        return;
    }
    std::fs::write(disk.join("fill"), vec![0; 40 << 10]).unwrap();
    let job = ["run", "--ledger", "disk/l.redb", "--create", "--key", "a", "--", "sh", "-c", EFFECT];
    let said = place.once(&job);
    std::fs::remove_file(disk.join("fill")).unwrap();
    let unmounted = Command::new("umount").arg(&disk).status().unwrap();
    assert!(unmounted.success());
    said.code(69).says("disk");
    assert_eq!(place.effects(), 0);
}
