//! Approvals and cells from the outside.

use serde_json::json;

use crate::support::{EFFECT, Place, Said, until};

const ARGS: &str = r#"--args {"amount":79,"to":"ana"}"#;

fn run(place: &Place, options: &str) -> Said {
    place.run("ord_42", &format!("{ARGS} --approval {options}"), EFFECT)
}

#[track_caller]
fn decide(place: &Place, command: &str, id: &str, options: &[&str]) -> Said {
    let arguments = [&[command, id, "--ledger", "l.redb", "--by"], options].concat();
    place.once(&arguments)
}

#[track_caller]
fn approvals(place: &Place, options: &[&str]) -> Vec<serde_json::Value> {
    place.once(&[&["approvals", "--ledger", "l.redb", "--json"], options].concat()).code(0).lines()
}

/// The whole way, as a person goes it: refused, the printed command typed, run, repeated.
#[test]
fn a_run_that_needs_a_yes_is_run_once_after_it() {
    let place = Place::with_ledger();
    let first = run(&place, "").code(77).says("is pending until").says("nothing was run").prints("");
    let command = first.err.lines().find(|line| line.trim_start().starts_with("onceledger approve ")).unwrap();
    let words: Vec<&str> = command.split_whitespace().take_while(|word| *word != "--by").skip(1).collect();
    run(&place, "").code(77);
    let pending = approvals(&place, &["--pending"]);
    assert_eq!(pending.len(), 1, "asking twice is one request");
    assert_eq!(words[1], pending[0]["id"].to_string());
    place.once(&[&words[..], &["--by", "ana"]].concat()).code(0);
    place.once(&[&words[..], &["--by", "ana"]].concat()).code(0);
    run(&place, "").code(0).prints("effect\n");
    run(&place, "").code(0).prints("effect\n").says("repeat:");
    assert_eq!(place.effects(), 1);
    assert_eq!(approvals(&place, &["--pending"]).len(), 0);
    let spent = approvals(&place, &[]).remove(0);
    assert_eq!((&spent["state"], &spent["spent_by"]), (&json!("spent"), &place.show("ord_42")["token"]));
    let events = place.events("ord_42");
    assert_eq!(events, ["approval_requested", "approved", "granted", "approval_spent", "done"]);
}

#[test]
fn every_reason_not_to_run_is_77_and_says_which() {
    let place = Place::quick_with_ledger();
    let id = || approvals(&place, &[]).pop().unwrap()["id"].to_string();
    run(&place, "").code(77);
    decide(&place, "deny", &id(), &["ben", "--why", "too much"]).code(0);
    run(&place, "").code(77).says("denied by ben").says("too much").says("--ask-again");
    // Pending or over already: a millisecond is short on a busy machine.
    run(&place, "--ask-again --approval-valid 1ms").code(77);
    std::thread::sleep(std::time::Duration::from_millis(5));
    run(&place, "").code(77).says("expired since");
    run(&place, "--ask-again").code(77).says("pending");
    decide(&place, "approve", &id(), &["ana"]).code(0);
    // Other arguments of the same key are not what was approved, and nothing is spent.
    place.run("ord_42", r#"--args {"amount":790,"to":"ana"} --approval"#, EFFECT).code(77).says("is pending");
    // The effect did not happen: the yes comes back, and the next run has it.
    place.run("ord_42", &format!("{ARGS} --approval --not-applied 3"), "exit 3").code(3);
    run(&place, "").code(0);
    assert_eq!(place.effects(), 1);
    let states: Vec<String> =
        approvals(&place, &[]).iter().map(|line| line["state"].as_str().unwrap().to_owned()).collect();
    assert_eq!(states, ["denied", "expired", "spent", "pending"]);
}

#[test]
fn without_arguments_there_is_nothing_to_approve() {
    let place = Place::quick_with_ledger();
    place.run("a", "--approval", EFFECT).code(64).says("--approval needs --args");
    place.run("a", &format!("{ARGS} --ask-again"), EFFECT).code(64);
    place.run("a", &format!("{ARGS} --approval-valid 5s"), EFFECT).code(64);
    place.run("a", &format!("{ARGS} --approval --approval-valid 0s"), EFFECT).code(64);
    assert_eq!(approvals(&place, &[]).len(), 0);
    assert_eq!(place.effects(), 0);
}

#[test]
fn json_has_the_fields_of_the_contract() {
    let place = Place::quick_with_ledger();
    let refused = run(&place, "--json").code(77).json();
    assert_eq!((&refused["ran"], &refused["standing"]), (&json!(false), &json!("vacant")));
    assert!(refused["next"].as_str().unwrap().starts_with("onceledger approve "));
    let line = approvals(&place, &[]).remove(0);
    // The deadline is in the ledger's own time; on the wall it is about this.
    let (asked, listed) = (&refused["approval"]["deadline_ms"], &line["deadline_ms"]);
    assert!(asked.as_u64().unwrap().abs_diff(listed.as_u64().unwrap()) < 1000, "{asked} {listed}");
    for field in ["id", "key", "args_digest", "state", "shown", "scope", "label", "spent_by", "decisions"] {
        assert_eq!(refused["approval"][field], line[field], "{field}");
    }
    let fields: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    for field in ["id", "key", "args_digest", "state", "shown", "deadline_ms"] {
        assert!(fields.contains(&field), "{field} is missing in {fields:?}");
    }
    let shown: serde_json::Value = serde_json::from_str(line["shown"].as_str().unwrap()).unwrap();
    let wanted = json!({"scope": "default", "key": ["job", "ord_42"], "args": {"amount": 79, "to": "ana"}});
    assert_eq!(shown, wanted);
    let key = ["key", "--json", "--key", "job", "--key", "ord_42", "--args", r#"{"to":"ana","amount":79.0}"#];
    let key = place.once(&key).code(0).json();
    assert_eq!((&line["key"], &line["args_digest"]), (&key["key"], &key["args"]));
    let id = line["id"].to_string();
    let approved = decide(&place, "approve", &id, &["ana", "--json"]).code(0).json();
    assert_eq!((&approved["state"], &approved["decisions"][1]["by"]), (&json!("approved"), &json!("ana")));
    let denied = decide(&place, "deny", &id, &["ben", "--why", "no", "--json"]).code(0).json();
    assert_eq!((&denied["state"], &denied["decisions"][2]["why"]), (&json!("denied"), &json!("no")));
    let conflict = decide(&place, "approve", &id, &["ana", "--json"]).code(65).says("denied by ben").json();
    assert_eq!((&conflict["error"]["kind"], &conflict["error"]["exit_code"]), (&json!("stale"), &json!(65)));
    let unknown = decide(&place, "approve", "999", &["ana", "--json"]).code(64).json();
    assert_eq!(unknown["error"]["kind"], "bad_input");
    decide(&place, "deny", &id, &[" "]).code(64);
    let table = place.once(&["approvals", "--ledger", "l.redb"]).code(0);
    let table = String::from_utf8(table.out).unwrap();
    assert!(table.starts_with("ID") && table.contains("denied") && table.contains("ord_42"), "{table}");
}

/// What an approver is shown must not steer a terminal.
#[test]
fn a_table_holds_no_control_characters() {
    let place = Place::quick_with_ledger();
    let args =
        ["run", "--ledger", "l.redb", "--key", "job", "--key", "a\u{1b}[2J", "--label", "b\u{1b}[2J", "--approval"];
    place.once(&[&args[..], &["--args", r#"{"x":"\u001b[2J\r"}"#, "--", "true"]].concat()).code(77);
    let table = place.once(&["approvals", "--ledger", "l.redb"]).code(0);
    assert!(table.out.iter().all(|byte| *byte == b'\n' || *byte >= b' '), "{table:?}");
}

#[test]
fn two_runs_at_once_under_one_yes_are_one_effect() {
    let place = Place::quick_with_ledger();
    run(&place, "").code(77);
    let id = approvals(&place, &[]).remove(0)["id"].to_string();
    decide(&place, "approve", &id, &["ana"]).code(0);
    let options = format!("{ARGS} --approval");
    let running: Vec<_> = (0..4).map(|_| place.start("ord_42", &options, EFFECT)).collect();
    let codes: Vec<_> = running.into_iter().map(|running| running.finish().code.unwrap()).collect();
    assert!(codes.contains(&0) && codes.iter().all(|code| [0, 75].contains(code)), "{codes:?}");
    assert_eq!(place.effects(), 1);
}

/// Killed between the claim and the program, it is a doubt under a spent yes; not done gives it back.
#[test]
fn a_kill_after_the_spend_is_a_doubt_and_not_done_gives_the_yes_back() {
    let place = Place::with_ledger();
    run(&place, "").code(77);
    let id = approvals(&place, &[]).remove(0)["id"].to_string();
    decide(&place, "approve", &id, &["ana"]).code(0);
    place.stopped_at("after-claim", "ord_42", &format!("{ARGS} --approval"), EFFECT).kill();
    until("the doubt", || place.show("ord_42")["standing"] == "uncertain");
    assert_eq!(approvals(&place, &[]).remove(0)["state"], "spent");
    run(&place, "").code(76);
    let token = place.show("ord_42")["token"].to_string();
    let resolve = ["resolve", "--ledger", "l.redb", "--key", "job", "--key", "ord_42", "--token", &token];
    place.once(&[&resolve[..], &["--not-done", "--by", "ops", "--why", "looked"]].concat()).code(0);
    assert_eq!(approvals(&place, &[]).remove(0)["state"], "approved");
    run(&place, "").code(0);
    assert_eq!(place.effects(), 1);
}

#[track_caller]
fn cell(place: &Place, arguments: &[&str]) -> Said {
    place.once(&[&["cell"], arguments, &["--ledger", "l.redb"]].concat())
}

#[test]
fn a_cell_is_set_only_where_it_is_as_expected() {
    let place = Place::quick_with_ledger();
    cell(&place, &["get", "budget"]).code(66).says("there is no cell").prints("");
    let absent = cell(&place, &["get", "budget", "--json"]).code(66).json();
    assert_eq!((&absent["name"], &absent["version"]), (&json!("budget"), &json!(null)));
    let first = cell(&place, &["set", "budget", "100", "--expect", "absent"]).code(0);
    let first = String::from_utf8(first.out).unwrap().trim().to_owned();
    cell(&place, &["get", "budget"]).code(0).prints("100");
    cell(&place, &["set", "budget", "0", "--expect", "absent"]).code(65).says(&format!("is at version {first}"));
    let second = cell(&place, &["set", "budget", "99", "--expect", &first, "--json"]).code(0).json();
    assert_eq!((&second["value"], &second["kind"], &second["error"]), (&json!("99"), &json!("text"), &json!(false)));
    let stale = cell(&place, &["set", "budget", "0", "--expect", &first, "--json"]).code(65).json();
    assert_eq!(stale["error"]["kind"], "stale");
    assert_eq!(cell(&place, &["get", "budget", "--json"]).code(0).json(), second);
    cell(&place, &["delete", "budget", "--expect", &first]).code(65);
    cell(&place, &["delete", "budget", "--expect", "absent"]).code(64);
    let deleted = cell(&place, &["delete", "budget", "--expect", &second["version"].to_string(), "--json"]);
    assert_eq!(deleted.code(0).json()["version"], json!(null));
    cell(&place, &["delete", "budget", "--expect", &first]).code(65).says("is not there");
    for bad in [
        &["set", "budget", "1"][..],
        &["set", "budget", "--expect", "absent"],
        &["set", "budget", "1", "--expect", "soon"],
        &["set", "budget", "1", "--expect", "-1"],
        &["set", "budget", "1", "--file", "x", "--expect", "absent"],
        &["set", "", "1", "--expect", "absent"],
        &["get", ""],
        &["delete", "budget"],
    ] {
        cell(&place, bad).code(64);
    }
    cell(&place, &["get", "budget"]).code(66);
}

#[test]
fn a_value_comes_from_a_file_or_from_stdin_whatever_its_bytes() {
    use std::io::Write;
    let place = Place::quick_with_ledger();
    place.write("bytes", [0xff, 0, b'\n']);
    cell(&place, &["set", "bytes", "--file", "bytes", "--expect", "absent"]).code(0);
    assert_eq!(cell(&place, &["get", "bytes"]).code(0).out, [0xff, 0, b'\n']);
    let object = cell(&place, &["get", "bytes", "--json"]).code(0).json();
    assert_eq!((&object["kind"], &object["value"]["base64"]), (&json!("binary"), &json!("/wAK")));
    let set = ["cell", "set", "piped", "--file", "-", "--expect", "absent", "--ledger", "l.redb"];
    let mut child = place.command(&set).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    crate::support::Running(child).finish().code(0);
    cell(&place, &["get", "piped"]).code(0).prints("from a pipe");
    cell(&place, &["set", "empty", "", "--expect", "absent"]).code(0);
    cell(&place, &["get", "empty"]).code(0).prints("");
    place.write("large", vec![b'v'; 64 * 1024 + 1]);
    cell(&place, &["set", "large", "--file", "large", "--expect", "absent"]).code(64).says("over the limit");
    cell(&place, &["set", "large", "--file", "/dev/zero", "--expect", "absent"]).code(64).says("over the limit");
    cell(&place, &["set", "large", "--file", "nothing", "--expect", "absent"]).code(64).says("reading the value");
}

/// Processes that count a budget down by compare-and-set: each unit goes to one of them.
#[test]
fn processes_that_drain_a_cell_get_each_unit_once() {
    let place = Place::quick_with_ledger();
    const UNITS: u64 = 12;
    cell(&place, &["set", "budget", &UNITS.to_string(), "--expect", "absent"]).code(0);
    let taken: u64 = std::thread::scope(|scope| {
        let drains: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut taken = 0;
                    loop {
                        let object = cell(&place, &["get", "budget", "--json"]).code(0).json();
                        let left: u64 = object["value"].as_str().unwrap().parse().unwrap();
                        let Some(rest) = left.checked_sub(1) else { return taken };
                        let version = object["version"].to_string();
                        let set = cell(&place, &["set", "budget", &rest.to_string(), "--expect", &version]);
                        assert!([0, 65].contains(&set.code.unwrap()), "{set:?}");
                        taken += u64::from(set.code == Some(0));
                    }
                })
            })
            .collect();
        drains.into_iter().map(|drain| drain.join().unwrap()).sum()
    });
    assert_eq!(taken, UNITS);
}
