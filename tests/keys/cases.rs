//! Cases from the field, by number (docs/CASES.md), as far as keys alone can answer them.

use std::collections::HashSet;

use onceledger::canonical::Value;
use onceledger::{Downstream, Fingerprint, Key, Scope};

use crate::{NONE, by_hand, canonical, parse, tool};

const ARGS: &str = r#"{"order":"ord_42","amount":79,"note":"hello"}"#;

fn scope() -> Scope {
    Scope::new("acme/support").unwrap()
}

fn action(parts: &[&[u8]]) -> Key {
    Key::action(&scope(), "refund", parts).unwrap()
}

#[track_caller]
fn all_distinct<T: Eq + std::hash::Hash>(items: impl IntoIterator<Item = T>) {
    let items: Vec<T> = items.into_iter().collect();
    let count = items.len();
    assert_eq!(items.into_iter().collect::<HashSet<T>>().len(), count);
}

#[test]
fn case_42_the_same_configuration_applied_three_times_gives_the_same_key() {
    let key = |identity: &[&str]| Key::tool(&scope(), "refund", &tool(ARGS, identity, &[])).unwrap();
    let once = key(&["/order", "/amount"]);
    assert_eq!(once, key(&["/order", "/amount", "/order", "/amount", "/amount", "/order"]));
    assert_eq!(once, key(&["/amount", "/order"]));
    assert_eq!(once.to_hex().len(), 64);
}

#[test]
fn case_43_joined_parts_never_collide() {
    for separator in 0..=255_u8 {
        let left = [b"p".as_slice(), &[separator], b"q"].concat();
        let right = [b"q".as_slice(), &[separator], b"r"].concat();
        let all = [b"p".as_slice(), &[separator], b"q", &[separator], b"r"].concat();
        all_distinct([action(&[&left, b"r"]), action(&[b"p", &right]), action(&[&all]), action(&[b"p", b"q", b"r"])]);
    }
}

#[test]
fn case_43_scope_run_action_and_parts_never_flow_into_each_other() {
    let scope = |name: &str| Scope::new(name).unwrap();
    let none: [&str; 0] = [];
    all_distinct([
        Key::action(&scope("a"), "bc", none).unwrap(),
        Key::action(&scope("ab"), "c", none).unwrap(),
        Key::action(&scope("a"), "b", ["c"]).unwrap(),
        Key::action(&scope("a").run("b").unwrap(), "c", none).unwrap(),
        Key::action(&Scope::global(), "a", ["b", "c"]).unwrap(),
        Key::action(&Scope::global().run("a").unwrap(), "b", ["c"]).unwrap(),
    ]);
}

#[test]
fn case_45_names_and_values_never_flow_into_each_other() {
    all_distinct(
        [tool(r#"{"a":"bc"}"#, &["/a"], &[]), tool(r#"{"ab":"c"}"#, &["/ab"], &[])].map(|one| one.fingerprint()),
    );
    all_distinct([r#"{"a":"bc"}"#, r#"{"ab":"c"}"#].map(|args| tool(args, &[], &[]).fingerprint()));
    all_distinct([
        by_hand(r#"{"a":"b","c":"d"}"#, &["/a"]).fingerprint(),
        by_hand(r#"{"a":"b","c":"d"}"#, &["/a", "/c"]).fingerprint(),
        by_hand(r#"{"a":"b","c":"d"}"#, &["/c"]).fingerprint(),
    ]);
}

#[test]
fn case_46_a_value_and_its_spelling_are_two_values() {
    all_distinct(
        ["1", "\"1\"", "true", "\"true\"", "null", "\"null\"", "[]", "{}", "\"\"", "false", "0"]
            .map(|value| by_hand(&format!("{{\"a\":{value}}}"), &["/a"]).fingerprint()),
    );
}

#[test]
fn case_47_only_listed_fields_make_the_key() {
    let key = |args: &str| Key::tool(&scope(), "refund", &tool(args, &["/order"], &["/amount"])).unwrap();
    let fingerprint = |args: &str| tool(args, &["/order"], &["/amount"]).fingerprint();
    let other_note = r#"{"order":"ord_42","amount":79,"note":"world","time":1}"#;
    let other_amount = r#"{"order":"ord_42","amount":80,"note":"hello"}"#;
    let other_order = r#"{"order":"ord_43","amount":79,"note":"hello"}"#;
    assert_eq!(key(ARGS), key(other_note));
    assert_eq!(fingerprint(ARGS), fingerprint(other_note));
    assert_eq!(key(ARGS), key(other_amount));
    assert_ne!(fingerprint(ARGS), fingerprint(other_amount));
    assert_ne!(key(ARGS), key(other_order));
    assert_ne!(fingerprint(ARGS), fingerprint(other_order));
}

#[test]
fn case_47_a_missing_identity_field_is_an_error_and_names_the_field() {
    for args in ["{}", "null", "[]", r#"{"ORDER":1}"#] {
        let error = onceledger::Selection::tool(&parse(args), &["/order"], &NONE).unwrap_err();
        assert!(error.is_bad_input());
        assert!(error.to_string().contains("/order"), "{error}");
    }
    // Null is there.
    tool(r#"{"order":null}"#, &["/order"], &[]);
}

#[test]
fn case_48_null_is_not_missing() {
    assert_ne!(parse(r#"{"a":null}"#), parse("{}"));
    all_distinct([r#"{"a":null}"#, "{}"].map(|args| by_hand(args, &[]).fingerprint()));
    all_distinct([r#"{"a":null}"#, "{}", r#"{"a":""}"#].map(|args| by_hand(args, &["/a"]).fingerprint()));
}

#[test]
fn case_50_entropy_and_length_do_not_change_the_answer() {
    let plain = vec![b'a'; 2048];
    let noise: Vec<u8> = (0..2048_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    all_distinct([action(&[&plain]), action(&[&noise])]);
    assert!(Key::action(&scope(), "refund", [vec![b'a'; 64 * 1024]]).is_ok());
    assert!(Key::action(&scope(), "refund", [vec![b'a'; 64 * 1024 + 1]]).unwrap_err().is_bad_input());
}

#[test]
fn case_51_nothing_is_cut() {
    let part = |end: char| format!("{}{end}", "x".repeat(190));
    all_distinct([action(&[part('1').as_bytes()]), action(&[part('2').as_bytes()])]);
    let name = |end: char| Scope::new(format!("{}{end}", "x".repeat(511))).unwrap();
    all_distinct(['1', '2'].map(|end| Key::action(&name(end), "refund", ["1"]).unwrap()));
}

#[test]
fn case_53_integers_above_two_to_the_53_keep_every_digit() {
    all_distinct(
        [
            "9007199254740992",
            "9007199254740993",
            "9007199254740993000000000000000001",
            "9007199254740993000000000000000002",
            "9007199254740993e300",
            "9007199254740992e300",
            "18446744073709551615",
            "18446744073709551616",
            "18446744073709552000",
        ]
        .map(|number| by_hand(&format!("[{number}]"), &[]).fingerprint()),
    );
}

#[test]
fn case_54_a_lone_surrogate_stops_before_any_claim() {
    let error = Value::parse(r#"{"a":"\ud800"}"#).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("lone surrogate"), "{error}");
    assert!(Value::parse_bytes(b"\"\xED\xA0\x80\"").unwrap_err().is_bad_input());
}

#[test]
fn case_57_duplicate_names_are_refused() {
    let error = Value::parse(r#"{"amount":1,"amount":9}"#).unwrap_err();
    assert!(error.is_bad_input(), "{error}");
    assert!(error.to_string().contains("byte 12") && error.to_string().contains("\"amount\""), "{error}");
}

#[test]
fn case_59_the_same_key_with_other_arguments_has_another_fingerprint() {
    let other = r#"{"order":"ord_42","amount":80,"note":"hello"}"#;
    all_distinct([by_hand(ARGS, &[]).fingerprint(), by_hand(other, &[]).fingerprint(), Fingerprint::UNGUARDED]);
    all_distinct([by_hand("null", &[]).fingerprint(), by_hand("{}", &[]).fingerprint(), Fingerprint::UNGUARDED]);
}

#[test]
fn case_66_there_is_no_key_without_a_scope_and_the_global_one_is_explicit() {
    let error = Scope::new("").unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("Scope::global()"), "{error}");
    let names = [scope(), Scope::new("acme").unwrap(), Scope::global(), Scope::new(" ").unwrap()];
    all_distinct(names.iter().map(|scope| Key::action(scope, "refund", ["ord_42"]).unwrap()));
    assert!(Scope::new("x".repeat(513)).unwrap_err().is_bad_input());
}

#[test]
fn case_67_the_call_id_is_never_the_whole_key() {
    let call = |run: &str, args: &str| Key::call(&scope(), run, "X", &by_hand(args, &[]).fingerprint()).unwrap();
    all_distinct([call("r1", "[1]"), call("r1", "[2]"), call("r1", "[3]"), call("r2", "[1]")]);
    assert_eq!(call("r1", "[1]"), call("r1", "[1.0]"));
}

#[test]
fn case_69_missing_ids_are_errors() {
    let fingerprint = Fingerprint::UNGUARDED;
    assert!(Key::call(&scope(), "", "X", &fingerprint).unwrap_err().is_bad_input());
    assert!(Key::call(&scope(), "r1", "", &fingerprint).unwrap_err().is_bad_input());
    assert!(Key::action(&scope(), "", ["1"]).unwrap_err().is_bad_input());
    assert!(Key::action(&scope(), "refund", ["1", ""]).unwrap_err().is_bad_input());
    assert!(Key::tool(&scope(), "", &tool(ARGS, &[], &[])).unwrap_err().is_bad_input());
    assert!(Key::tool(&scope(), "refund", &by_hand(ARGS, &[])).unwrap_err().is_bad_input());
    let run = scope().run("r1").unwrap();
    assert!(Key::call(&run, "r2", "X", &fingerprint).unwrap_err().is_bad_input());
}

#[test]
fn case_74_the_downstream_key_is_stable_and_differs_per_label() {
    let key = action(&[b"ord_42"]);
    let again = Key::from_digest(*key.digest());
    assert_eq!(key.downstream("refund"), again.downstream("refund"));
    let shapes = |one: Downstream| [one.as_hex(), one.as_base64url(), one.as_uuid()];
    all_distinct(["refund", "mail"].map(|label| shapes(key.downstream(label))));
    let uuid = key.downstream("refund").as_uuid();
    assert_eq!((uuid.len(), uuid.as_bytes()[14]), (36, b'8'));
    assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    assert_eq!(key.downstream("refund").as_base64url().len(), 43);
}

#[test]
fn case_p6_and_p10_equal_numbers_are_equal_and_nothing_is_normalised() {
    for (a, b) in
        [("1", "1.0"), ("1", "1e0"), ("10", "10.0"), ("0", "-0"), ("0", "-0.0"), ("1", "10e-1"), ("79.00", "79")]
    {
        assert_eq!(parse(a), parse(b));
        assert_eq!(canonical(a), canonical(b));
        assert_eq!(by_hand(a, &[]).fingerprint(), by_hand(b, &[]).fingerprint());
    }
    all_distinct(["\"\u{e9}\"", "\"e\u{301}\""].map(|text| by_hand(text, &[]).fingerprint()));
    all_distinct(["\u{e9}", "e\u{301}"].map(|part| action(&[part.as_bytes()])));
}

#[test]
fn keys_compare_by_digest_and_carry_names_for_people() {
    let key = Key::action(&scope().run("r1").unwrap(), "refund", ["ord_42"]).unwrap();
    let bare: Key = key.to_string().parse().unwrap();
    assert_eq!(key, bare);
    assert_eq!((key.scope(), key.run(), key.action_name()), (Some("acme/support"), Some("r1"), Some("refund")));
    assert_eq!((bare.scope(), bare.run(), bare.action_name()), (None, None, None));
    assert_eq!(HashSet::from([key.clone()]).get(&bare), Some(&key));
    let text = serde_json::to_string(&key).unwrap();
    assert_eq!(text, format!("\"{}\"", key.to_hex()));
    assert_eq!(serde_json::from_str::<Key>(&text).unwrap(), key);
    let bytes = bincode::serialize(&key).unwrap();
    assert_eq!(bytes, key.digest());
    assert_eq!(bincode::deserialize::<Key>(&bytes).unwrap(), key);
    assert!("00".parse::<Key>().unwrap_err().is_bad_input());
}
