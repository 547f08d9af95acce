//! What each command prints, and every exit code.

use std::process::Stdio;

use onceledger::canonical::Value;
use onceledger::{Fingerprint, Key, Scope, Selection};

use crate::support::{EFFECT, Place, Running, lives, signal};

#[test]
fn the_main_job_twice_is_one_effect_and_one_output() {
    let place = Place::new();
    let job = ["run", "--ledger", "demo.redb", "--create", "--key", "refund", "--key", "ord_42", "--", "sh", "-c"];
    let job = [&job[..], &["echo refunded | tee -a effects.log; echo warned >&2"]].concat();
    let first = place.once(&job).code(0).prints("refunded\n");
    assert_eq!(first.err, "warned\n");
    let again = place.once(&job).code(0).prints("refunded\n");
    assert!(again.err.starts_with("warned\nonceledger: repeat: "), "{}", again.err);
    assert_eq!(again.err.lines().count(), 2, "one line of note: {}", again.err);
    assert_eq!(place.read("effects.log"), "refunded\n");
}

#[test]
fn every_exit_code_of_the_table() {
    let place = Place::with_ledger();
    let exits = |key: &str, options: &str, script: &str, code: i32| place.run(key, options, script).code(code);
    exits("done", "", EFFECT, 0);
    exits("done", "", EFFECT, 0).says("repeat:");
    exits("final", "--final 4,5", &format!("{EFFECT}; exit 5"), 5).prints("effect\n");
    exits("final", "--final 4,5", &format!("{EFFECT}; exit 5"), 5).prints("effect\n").says("failed for good");
    exits("again", "--not-applied 9", &format!("{EFFECT}; exit 9"), 9).says("the key is free again");
    exits("again", "--not-applied 9", EFFECT, 0);
    exits("doubt", "--final 4 --not-applied 9", &format!("{EFFECT}; exit 1"), 76).says("--token ");
    exits("doubt", "--final 4 --not-applied 9", EFFECT, 76).says("do not run it again");
    exits("shot", "--final 9 --not-applied 137", "kill -9 $$", 76).says("signal 9");
    assert_eq!(place.effects(), 5);

    exits("done", "--args 1", EFFECT, 65).says("mismatch");
    exits("usage", "--lease 0s", EFFECT, 64);
    let gone = ["run", "--ledger", "nowhere.redb", "--key", "a", "--", "true"];
    place.once(&gone).code(69).says("there is no ledger at").says("onceledger init");
    let running = place.stopped_at("after-spawn", "slow", "", "true");
    exits("slow", "", EFFECT, 75).says("in progress").says(&running.pid().to_string());
    place.go_on();
    running.finish().code(0);
    assert_eq!(place.effects(), 5);
    assert_eq!(place.show("final")["exit_code"], 5);
    assert_eq!(place.show("final")["outcome"]["error"], true);
    assert_eq!(place.show("done")["outcome"]["error"], false);
    assert_eq!(place.events("again"), ["granted", "released", "granted", "done"]);
}

#[test]
fn a_program_that_cannot_be_started_frees_the_key() {
    let place = Place::with_ledger();
    place.write("data", "no program");
    let run = |program: &str| place.once(&["run", "--ledger", "l.redb", "--key", "job", "--key", "p", "--", program]);
    run("./nothing-here").code(127).says("./nothing-here").says("the key").says("is free again");
    run("./data").code(126).says("Permission denied");
    assert_eq!(place.show("p")["standing"], "vacant");
    place.run("p", "", EFFECT).code(0);
    assert_eq!(place.show("p")["attempt"], 3);
}

#[test]
fn help_and_document_hold_the_same_exit_codes() {
    let place = Place::new();
    let help = place.once(&["run", "--help"]).code(0);
    let help = String::from_utf8(help.out).unwrap();
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CLI.md")).unwrap();
    for code in ["0", "64", "65", "69", "75", "76", "77", "126", "127"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(code)), "{code} is not in --help");
        assert!(document.contains(&format!("| {code} |")), "{code} is not in docs/CLI.md");
    }
    place.once(&["--version"]).code(0);
    for command in
        ["init", "run", "calls", "show", "list", "history", "resolve", "key", "sweep", "verify", "stats", "adopt"]
    {
        let help = String::from_utf8(place.once(&[command, "--help"]).code(0).out).unwrap();
        assert!(document.contains(&format!("`{command}")), "{command} is not in docs/CLI.md");
        let options = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        for option in options.filter(|word| word.starts_with("--") && word.len() > 2) {
            assert!(document.contains(option), "{option} of {command} is not in docs/CLI.md");
        }
    }
}

#[test]
fn output_that_is_not_text_comes_back_byte_for_byte() {
    let place = Place::with_ledger();
    let script = r"printf '\377\000\n'; printf 'caf\303\251\r\n' >&2";
    let first = place.run("bytes", "", script).code(0);
    assert_eq!(first.out, b"\xff\0\n");
    let again = place.run("bytes", "", script).code(0);
    assert_eq!(again.out, b"\xff\0\n");
    assert!(again.err.starts_with("café\r\n"), "{:?}", again.err);
    let line = place.run("bytes", "--json", script).code(0).json();
    assert_eq!(line["stdout"], serde_json::json!({"base64": "/wAK"}));
    assert_eq!(line["stderr"], "café\r\n");
}

#[test]
fn empty_output_is_an_output() {
    let place = Place::with_ledger();
    place.run("empty", "", "true").code(0).prints("");
    place.run("empty", "", "true").code(0).prints("");
    let line = place.run("empty", "--json", "true").code(0).json();
    assert_eq!((&line["stdout"], &line["outcome"]["kept"]), (&"".into(), &true.into()));
}

#[test]
fn output_over_the_limit_is_passed_on_and_not_kept_but_its_code_is() {
    let place = Place::with_ledger();
    let script = "head -c 1048577 /dev/zero; echo effect >> effects.log; exit 3";
    let first = place.run("large", "--final 3", script).code(3);
    assert_eq!(first.out.len(), 1_048_577);
    place.run("large", "--final 3", script).code(3).prints("").says("its output is not kept");
    let line = place.show("large");
    assert_eq!(line["outcome"]["kept"], false);
    assert_eq!((&line["outcome"]["body"], &line["exit_code"]), (&serde_json::Value::Null, &3.into()));
    assert_eq!(place.effects(), 1);
    let file = std::fs::metadata(place.path("l.redb")).unwrap().len();
    assert!(file < 1 << 20, "the ledger grew to {file} bytes");
    // The caller gets it, kept or not.
    let line = place.run("large-json", "--final 3 --json", script).code(3).json();
    assert_eq!(line["stdout"].as_str().unwrap().len(), 1_048_577);
    assert_eq!(line["outcome"]["kept"], false);
}

#[test]
fn with_json_output_beyond_any_object_is_null_and_the_effect_is_recorded() {
    let place = Place::quick_with_ledger();
    let script = "echo effect >> effects.log; yes | head -c 70000000; echo err >&2";
    let line = place.run("huge", "--json", script).code(0).json();
    assert_eq!((&line["stdout"], &line["stderr"]), (&serde_json::Value::Null, &"err\n".into()));
    assert_eq!((&line["standing"], &line["outcome"]["kept"]), (&"done".into(), &false.into()));
    place.run("huge", "", script).code(0).says("not kept");
    assert_eq!(place.effects(), 1);
}

#[test]
fn output_passes_through_while_the_program_runs() {
    let place = Place::with_ledger();
    let script = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second";
    let mut running = place.start("live", "", script);
    let mut first = [0; 6];
    std::io::Read::read_exact(running.0.stdout.as_mut().unwrap(), &mut first).unwrap();
    assert_eq!(&first, b"first\n");
    place.write("go", "");
    running.finish().code(0).prints("second\n");
    place.run("live", "", "false").code(0).prints("first\nsecond\n");
}

#[test]
fn run_settles_when_the_program_exits_not_when_its_pipes_close() {
    let place = Place::with_ledger();
    let script = "sleep 600 & echo $! > pid; echo started";
    let said = place.run("daemon", "", script).code(0);
    let pid = place.read("pid").trim().parse().unwrap();
    assert!(lives(pid), "the background program should outlive run");
    said.prints("started\n");
    place.run("daemon", "", script).code(0).prints("started\n");
    signal(pid, "KILL");
}

#[test]
fn a_background_program_that_never_stops_writing_does_not_hang_run() {
    let place = Place::with_ledger();
    let script = "(while :; do echo more; sleep 0.01; done) & echo $! > pid; echo started";
    let mut child =
        place.command(&["run", "--ledger", "l.redb", "--key", "job", "--key", "n", "--", "sh", "-c", script]);
    let child = child.stderr(Stdio::null()).spawn().unwrap();
    let said = Running(child).finish();
    signal(place.read("pid").trim().parse().unwrap(), "KILL");
    assert!(String::from_utf8(said.code(0).out).unwrap().contains("started\n"));
    assert_eq!(place.show("n")["standing"], "done");
}

#[test]
fn with_json_the_output_is_in_the_object_only() {
    let place = Place::with_ledger();
    let script = "echo out; echo err >&2; echo effect >> effects.log";
    for (repeat, ran) in [(false, true), (true, false)] {
        let said = place.run("json", "--json", script).code(0);
        assert_eq!(said.err, "", "nothing of it on stderr");
        let line = said.json();
        let fields = ["key", "standing", "token", "attempt", "since_ms", "scope", "label", "fingerprint", "outcome"];
        for field in fields.into_iter().chain(["repeat", "exit_code", "stdout", "stderr"]) {
            assert!(line.get(field).is_some_and(|value| !value.is_null()), "{field} is missing in {line}");
        }
        assert_eq!((&line["stdout"], &line["stderr"]), (&"out\n".into(), &"err\n".into()));
        assert_eq!((&line["repeat"], &line["ran"]), (&repeat.into(), &ran.into()));
        assert_eq!(line["standing"], "done");
        assert_eq!(line["outcome"]["body"], r#"{"exit_code":0,"stdout":"out\n","stderr":"err\n"}"#);
    }
    let line = place.run("json-doubt", "--json", "echo out; exit 2").code(76).json();
    assert_eq!(
        (&line["standing"], &line["exit_code"], &line["stdout"]),
        (&"uncertain".into(), &2.into(), &"out\n".into())
    );
    let token = line["token"].as_u64().unwrap();
    assert!(line["next"].as_str().unwrap().contains(&format!("--token {token} ")));
    let line = place.run("json", "--json --args 1", script).code(65).json();
    assert_eq!(line["standing"], "done");
    assert_eq!(place.effects(), 1);
    let line = place.once(&["show", "--ledger", "none.redb", "--json", "--key", "a"]).code(69).json();
    assert_eq!((&line["error"]["kind"], &line["error"]["exit_code"]), (&"missing".into(), &69.into()));
}

#[test]
fn the_program_is_told_its_key_token_and_attempt() {
    let place = Place::with_ledger();
    let script = "echo $ONCELEDGER_KEY $ONCELEDGER_TOKEN $ONCELEDGER_ATTEMPT $ONCELEDGER_DOWNSTREAM_UUID";
    let said = place.run("env", "", script).code(0);
    let line = place.show("env");
    let key = key("env");
    let text = format!("{} {} 1 {}\n", key.to_hex(), line["token"], key.downstream("").as_uuid());
    said.prints(&text);
}

fn key(part: &str) -> Key {
    Key::action(&Scope::new("default").unwrap(), "job", [part]).unwrap()
}

#[test]
fn every_command_and_the_library_mean_the_same_key() {
    let place = Place::with_ledger();
    let action = ["--key", "job", "--key", "a"];
    let printed = place.once(&[&["key", "--json"][..], &action].concat()).code(0).json();
    let ours = key("a");
    assert_eq!(printed["key"], ours.to_hex());
    assert_eq!(printed["fingerprint"], Fingerprint::UNGUARDED.to_hex());
    let downstream = ours.downstream("");
    assert_eq!(printed["downstream"]["hex"], downstream.as_hex());
    assert_eq!(printed["downstream"]["base64url"], downstream.as_base64url());
    assert_eq!(printed["downstream"]["uuid"], downstream.as_uuid());
    place.run("a", "", "true").code(0);
    assert_eq!(place.show("a")["key"], ours.to_hex());
    let by_digits = place.once(&["show", &ours.to_hex(), "--ledger", "l.redb", "--json"]).code(0).json();
    assert_eq!(by_digits, place.show("a"));

    let arguments = r#"{"order":"o1","amount":7,"note":"x"}"#;
    let tool =
        ["--tool", "refund", "--args", arguments, "--identity", "/order", "--guard", "/amount", "--scope", "acme"];
    let printed = place.once(&[&["key", "--json", "--effect", "mail"][..], &tool].concat()).code(0).json();
    let selection = Selection::tool(&Value::parse(arguments).unwrap(), &["/order"], &["/amount"]).unwrap();
    let ours = Key::tool(&Scope::new("acme").unwrap(), "refund", &selection).unwrap();
    assert_eq!(printed["key"], ours.to_hex());
    assert_eq!(printed["fingerprint"], selection.fingerprint().to_hex());
    assert_eq!(printed["args"], selection.args_digest().to_hex());
    assert_eq!(printed["downstream"]["uuid"], ours.downstream("mail").as_uuid());
    let other = place.once(&["key", "--json", "--key", "job", "--key", "a", "--scope", "acme"]).code(0).json();
    assert_ne!(other["key"], key("a").to_hex(), "the scope is part of the key");
}

#[test]
fn a_tools_guard_is_compared_and_its_free_text_is_not() {
    let place = Place::with_ledger();
    let run = |arguments: &str| {
        let tool = ["run", "--ledger", "l.redb", "--tool", "refund", "--args", arguments];
        let fields = ["--identity", "/order", "--guard", "/amount", "--", "sh", "-c", EFFECT];
        place.once(&[&tool[..], &fields].concat())
    };
    run(r#"{"order":"o1","amount":7,"note":"a"}"#).code(0);
    run(r#"{"note":"b","amount":7.0,"order":"o1"}"#).code(0).says("repeat");
    run(r#"{"order":"o1","amount":8,"note":"a"}"#).code(65).says("mismatch");
    run(r#"{"order":"o2","amount":7,"note":"a"}"#).code(0);
    run(r#"{"amount":7}"#).code(64).says("/order");
    assert_eq!(place.effects(), 2);
    let detail = place.once(&["list", "--ledger", "l.redb", "--json", "--standing", "done"]).code(0);
    assert!(detail.lines().iter().all(|line| line["label"] == "refund" && line["scope"] == "default"));
}

#[test]
fn the_programs_own_arguments_are_not_in_the_fingerprint() {
    let place = Place::with_ledger();
    place.run("same", "--args {\"n\":1}", "echo one").code(0).prints("one\n");
    place.run("same", "--args {\"n\":1.0}", "echo two").code(0).prints("one\n");
    place.run("same", "--args {\"n\":2}", "echo one").code(65);
    place.run("same", "", "echo one").code(65);
}

#[test]
fn resolve_decides_a_doubt_by_its_token_only() {
    let place = Place::with_ledger();
    place.run("d", "", "echo effect >> effects.log; exit 1").code(76);
    let token = place.show("d")["token"].as_u64().unwrap();
    let resolve = |token: u64, rest: &[&str]| {
        let token = token.to_string();
        let head = ["resolve", "--ledger", "l.redb", "--key", "job", "--key", "d", "--token", &token];
        place.once(&[&head[..], &["--by", "ops/ana", "--why", "looked it up", "--json"], rest].concat())
    };
    resolve(token + 1, &["--done"]).code(65).says("stale").says("nothing changed");
    assert_eq!(place.show("d")["standing"], "uncertain");
    place.write("answer", "refund re_1\n");
    let line = resolve(token, &["--done", "--outcome", "answer"]).code(0).json();
    assert_eq!((&line["standing"], &line["verdict"]), (&"done".into(), &"done".into()));
    place.run("d", "", EFFECT).code(0).prints("refund re_1\n");
    resolve(token, &["--not-done"]).code(65).says("it is done");
    let history = place.about("history", "d").lines();
    let last = history.last().unwrap();
    assert_eq!(
        (&last["event"], &last["by"], &last["why"]),
        (&"resolved_done".into(), &"ops/ana".into(), &"looked it up".into())
    );
    assert!(history.iter().all(|line| line["token"].is_u64() && line["at_ms"].is_u64()));
    // For people too: what was decided, and the beginning of what is told from now on.
    let table = place.once(&["history", "--ledger", "l.redb", "--key", "job", "--key", "d"]).code(0);
    assert!(String::from_utf8_lossy(&table.out).contains("looked it up  refund re_1\n"), "{:?}", table.out);
    assert_eq!(place.effects(), 1);
}

#[test]
fn an_outcome_over_the_limit_is_resolved_without_its_body_and_says_so() {
    let place = Place::with_ledger();
    place.run("d", "", "exit 1").code(76);
    let token = place.show("d")["token"].to_string();
    place.write("answer", vec![b'x'; (1 << 20) + 1]);
    let resolve =
        ["resolve", "--ledger", "l.redb", "--key", "job", "--key", "d", "--token", &token, "--done", "--by", "a"];
    place.once(&[&resolve[..], &["--why", "b", "--outcome", "answer"]].concat()).code(0).says("is not kept");
    place.run("d", "", EFFECT).code(0).prints("").says("not kept");
}

#[test]
fn resolve_as_failed_or_not_done() {
    let place = Place::with_ledger();
    for (key, verdict, code) in [("f", "--failed", 1), ("n", "--not-done", 0)] {
        place.run(key, "", "exit 1").code(76);
        let token = place.show(key)["token"].to_string();
        let digits = place.show(key)["key"].as_str().unwrap().to_owned();
        let resolve = ["resolve", &digits, "--ledger", "l.redb", "--token", &token, verdict, "--by", "a", "--why", "b"];
        place.once(&resolve).code(0);
        place.run(key, "", EFFECT).code(code);
    }
    assert_eq!(place.effects(), 1);
}

#[test]
fn the_printed_resolve_command_lacks_the_decision_only() {
    let place = Place::with_ledger();
    let said = place.run("d", "", "exit 1").code(76);
    let line = said.err.lines().find(|line| line.trim_start().starts_with("onceledger resolve")).unwrap();
    // A shell takes it whole, with what it says beside the command.
    assert!(std::process::Command::new("sh").args(["-n", "-c", line]).status().unwrap().success(), "{line}");
    let mut words: Vec<&str> = line.split_once("   #").unwrap().0.split_whitespace().skip(1).collect();
    // Pasted as it is, it decides nothing.
    place.once(&words).code(64);
    assert_eq!(place.show("d")["standing"], "uncertain");
    *words.last_mut().unwrap() = "--done";
    place.once(&words).code(0);
    assert_eq!(place.show("d")["standing"], "done");
}

#[test]
fn a_forced_resolve_takes_a_claim_in_progress_and_the_late_outcome_is_evidence() {
    let place = Place::with_ledger();
    let running = place.stopped_at("after-spawn", "late", "", EFFECT);
    let token = place.show("late")["token"].to_string();
    let head = [
        "resolve", "--ledger", "l.redb", "--key", "job", "--key", "late", "--token", &token, "--by", "a", "--why", "b",
    ];
    place.once(&[&head[..], &["--not-done"]].concat()).code(65).says("--force");
    place.once(&[&head[..], &["--not-done", "--force"]].concat()).code(0);
    place.go_on();
    running.finish().code(65).prints("effect\n").says("stale").says("kept as evidence");
    assert_eq!(place.events("late"), ["granted", "resolved_not_done", "late_done"]);
    assert_eq!(place.show("late")["standing"], "vacant");
}

#[test]
fn lists_and_counts() {
    let place = Place::with_ledger();
    for key in 0..5 {
        place.run(&format!("k{key}"), "--label hello", "true").code(0);
    }
    place.run("bad", "", "exit 1").code(76);
    let list =
        |rest: &[&str]| place.once(&[&["list", "--ledger", "l.redb", "--json"][..], rest].concat()).code(0).lines();
    assert_eq!(list(&["--standing", "done"]).len(), 5);
    assert_eq!(list(&["--standing", "done", "--limit", "2"]).len(), 2);
    assert_eq!(list(&[]).len(), 6);
    assert!(list(&["--standing", "done"]).iter().all(|line| line["label"] == "hello"));
    assert_eq!(list(&["--standing", "uncertain"])[0]["outcome"], serde_json::Value::Null);
    let stats = place.once(&["stats", "--ledger", "l.redb", "--json"]).code(0).json();
    let counts = ["vacant", "in_progress", "done", "failed", "uncertain"].map(|name| stats[name].as_u64().unwrap());
    assert_eq!(counts, [0, 0, 5, 0, 1]);
    let verified = place.once(&["verify", "--ledger", "l.redb", "--json"]).code(0).json();
    assert_eq!(verified["bodies"], 5);
    for command in ["list", "stats", "verify", "sweep"] {
        let said = place.once(&[command, "--ledger", "l.redb"]).code(0);
        assert!(!said.out.is_empty(), "{command}");
    }
    let said = place.once(&["show", "--ledger", "l.redb", "--key", "job", "--key", "k1"]).code(0);
    assert!(String::from_utf8(said.out).unwrap().contains("standing"));
    assert_eq!(place.show("never")["standing"], "vacant");
}

#[test]
fn what_is_stored_does_not_steer_a_terminal() {
    let place = Place::with_ledger();
    let label = "red \u{1b}[31m";
    place.once(&["run", "--ledger", "l.redb", "--key", "a", "--label", label, "--", "true"]).code(0);
    let said = place.once(&["list", "--ledger", "l.redb"]).code(0);
    assert!(!said.out.contains(&0x1b), "{:?}", String::from_utf8_lossy(&said.out));
}

#[test]
fn keep_and_remember_end_in_two_stages_and_sweep_counts_them() {
    let place = Place::with_ledger();
    place.run("brief", "--keep 0s --remember 1h", EFFECT).code(0);
    place.run("brief", "--keep 0s --remember 1h", EFFECT).code(0).prints("").says("not kept");
    place.run("gone", "--remember 1s", EFFECT).code(0);
    crate::support::until("the key is forgotten", || place.show("gone")["standing"] == "vacant");
    place.run("gone", "--remember 1s", EFFECT).code(0).prints("effect\n");
    assert_eq!(place.effects(), 3);
    crate::support::until("the key is forgotten", || place.show("gone")["standing"] == "vacant");
    let swept = place.once(&["sweep", "--ledger", "l.redb", "--json"]).code(0).json();
    assert_eq!(swept["keys"], 1, "{swept}");
}

#[test]
fn a_closed_stdout_is_no_panic_and_no_other_exit_code() {
    let place = Place::with_ledger();
    place.run("k", "", "echo text").code(0);
    let arguments: [&[&str]; 6] = [
        &["show", "--ledger", "l.redb", "--key", "job", "--key", "k"],
        &["list", "--ledger", "l.redb"],
        &["stats", "--ledger", "l.redb", "--json"],
        &["--help"],
        &["run", "--ledger", "l.redb", "--key", "job", "--key", "k", "--", "true"],
        &[
            "run",
            "--ledger",
            "l.redb",
            "--key",
            "job",
            "--key",
            "new",
            "--",
            "sh",
            "-c",
            "sleep 0.1; echo text; echo effect >> effects.log",
        ],
    ];
    for arguments in arguments {
        let mut child = place.command(arguments).spawn().unwrap();
        drop(child.stdout.take());
        Running(child).finish().code(0);
    }
    assert_eq!(place.effects(), 1);
    assert_eq!(place.show("new")["standing"], "done");
}

#[test]
fn a_full_stdout_is_told() {
    let place = Place::with_ledger();
    let mut command = place.command(&["stats", "--ledger", "l.redb"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    Running(command.stdout(full).spawn().unwrap()).finish().code(69).says("writing to stdout");
}

#[test]
fn resend_runs_again_in_a_new_process_with_the_same_downstream_key() {
    let place = Place::with_ledger();
    let script = "echo $ONCELEDGER_DOWNSTREAM_HEX $ONCELEDGER_TOKEN $ONCELEDGER_ATTEMPT >> effects.log; [ $ONCELEDGER_ATTEMPT = 2 ]";
    place.run("again", "--recovery resend=1h", script).code(76);
    place.run("again", "--recovery resend=1h", script).code(0);
    place.run("again", "--recovery resend=1h", script).code(0).says("repeat");
    let text = place.read("effects.log");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let [first, second] = &rows[..] else { panic!("{text}") };
    assert_eq!(first[0], second[0]);
    assert!(first[1].parse::<u64>().unwrap() < second[1].parse::<u64>().unwrap());
    assert_eq!((first[2], second[2]), ("1", "2"));
}

#[test]
fn a_laxer_recovery_is_judged_by_the_stored_one() {
    let place = Place::with_ledger();
    place.run("strict", "", "exit 1").code(76);
    place.run("strict", "--recovery resend=1h", EFFECT).code(76).says("recovery rule stored");
    assert_eq!(place.effects(), 0);
}

#[test]
fn adopt_takes_over_a_file_without_its_anchor() {
    let place = Place::with_ledger();
    place.run("a", "", "true").code(0);
    std::fs::remove_file(place.path("l.redb.anchor")).unwrap();
    place.run("a", "", EFFECT).code(69).says("onceledger adopt");
    let line = place.once(&["adopt", "--ledger", "l.redb", "--by", "ana", "--why", "moved", "--json"]).code(0).json();
    assert_eq!(line["epoch"], 2);
    let stats = place.once(&["stats", "--ledger", "l.redb", "--json"]).code(0).json();
    let adoption = &stats["adoptions"][0];
    assert_eq!((&adoption["epoch"], &adoption["by"], &adoption["why"]), (&2.into(), &"ana".into(), &"moved".into()));
    let table = place.once(&["stats", "--ledger", "l.redb"]).code(0);
    assert!(String::from_utf8_lossy(&table.out).contains("by ana: moved"), "{table:?}");
    place.run("a", "", EFFECT).code(0).says("repeat");
    assert_eq!(place.effects(), 0);
}
