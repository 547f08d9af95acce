//! The files in tests/vectors. Their expected values come from check.py, not from this crate.

use onceledger::canonical::Value;
use onceledger::{ArgsDigest, Fingerprint, Key, Scope, Selection};
use serde_json::Value as Json;

use crate::{by_hand, parse, tool};

/// Runs `check` over every case of a file; too few cases are a failure.
fn each(file: &str, floor: usize, check: impl Fn(&Json)) {
    let path = format!("{}/tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let cases: Vec<Json> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for case in &cases {
        check(case);
    }
    println!("{file}: {} cases", cases.len());
    assert!(cases.len() >= floor, "{file}: {} cases, fewer than {floor}", cases.len());
}

fn text<'a>(case: &'a Json, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("{case}: no text {field}"))
}

fn bytes(value: &Json) -> Vec<u8> {
    match value.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let hex = text(value, "hex").as_bytes().chunks(2);
            hex.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
        }
    }
}

fn pointers<'a>(case: &'a Json, field: &str) -> Vec<&'a str> {
    case[field].as_array().unwrap().iter().map(|pointer| pointer.as_str().unwrap()).collect()
}

#[test]
fn canonical_texts_are_those_of_the_vectors() {
    each("canonical.json", 60, |case| {
        let value = parse(text(case, "input"));
        assert_eq!(value.to_canonical(), text(case, "canonical"), "{case}");
        assert_eq!(ArgsDigest::of(&value).to_hex(), text(case, "args_digest"), "{case}");
        assert_eq!(parse(text(case, "canonical")), value, "{case}");
    });
}

#[test]
fn what_the_vectors_refuse_is_refused_at_the_byte_they_name() {
    each("refused.json", 60, |case| {
        let error = Value::parse_bytes(&bytes(&case["input"])).unwrap_err();
        assert!(error.is_bad_input(), "{case}: {error}");
        assert!(error.advice().is_some(), "{case}: {error}");
        let place = format!("at byte {}:", case["byte"]);
        assert!(error.to_string().contains(&place), "{case}: {error}");
    });
}

#[test]
fn fingerprints_are_those_of_the_vectors() {
    each("fingerprints.json", 20, |case| {
        let fingerprint = match text(case, "rule") {
            "unguarded" => Fingerprint::UNGUARDED,
            "by_hand" => by_hand(text(case, "args"), &pointers(case, "guard")).fingerprint(),
            _ => select(case).fingerprint(),
        };
        assert_eq!(fingerprint.to_hex(), text(case, "fingerprint"), "{case}");
    });
}

fn select(case: &Json) -> Selection {
    tool(text(case, "args"), &pointers(case, "identity"), &pointers(case, "guard"))
}

#[test]
fn identity_digests_of_the_vectors_make_the_tool_keys() {
    let scope = Scope::new("acme").unwrap();
    each("fingerprints.json", 20, |case| {
        if text(case, "rule") == "tool" {
            let key = Key::tool(&scope, "refund", &select(case)).unwrap();
            let identity = bytes(&serde_json::json!({ "hex": case["identity_digest"] }));
            assert_eq!(key.to_hex(), tool_key("acme", "", "refund", &identity), "{case}");
        }
    });
}

/// The derivation of README.md once more, for keys whose identity is given as a digest.
fn tool_key(scope: &str, run: &str, tool: &str, identity: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let frame = |part: &[u8]| [&(part.len() as u64).to_le_bytes(), part].concat();
    let mut all = [frame(b"onceledger/key"), vec![1], frame(b"tool")].concat();
    for part in [scope.as_bytes(), run.as_bytes(), tool.as_bytes(), identity] {
        all.extend(frame(part));
    }
    all.extend(4_u64.to_le_bytes());
    Key::from_digest(Sha256::digest(all).into()).to_hex()
}

#[test]
fn keys_are_those_of_the_vectors() {
    each("keys.json", 30, |case| {
        let name = text(case, "scope");
        let run = text(case, "run");
        let plain = if name.is_empty() { Scope::global() } else { Scope::new(name).unwrap() };
        let scope = if run.is_empty() { plain.clone() } else { plain.run(run).unwrap() };
        let hex = match text(case, "kind") {
            "action" => {
                let parts = case["parts"].as_array().unwrap().iter().map(bytes);
                Key::action(&scope, text(case, "action"), parts).unwrap().to_hex()
            }
            "call" => {
                let fingerprint = text(case, "fingerprint").parse().unwrap();
                Key::call(&plain, run, text(case, "call_id"), &fingerprint).unwrap().to_hex()
            }
            _ => {
                let identity = bytes(&serde_json::json!({ "hex": case["identity_digest"] }));
                tool_key(name, run, text(case, "tool"), &identity)
            }
        };
        assert_eq!(hex, text(case, "key"), "{case}");
    });
}

#[test]
fn downstream_keys_are_those_of_the_vectors() {
    each("downstream.json", 8, |case| {
        let key: Key = text(case, "key").parse().unwrap();
        let downstream = key.downstream(text(case, "label"));
        assert_eq!(downstream.as_hex(), text(case, "hex"), "{case}");
        assert_eq!(downstream.as_base64url(), text(case, "base64url"), "{case}");
        assert_eq!(downstream.as_uuid(), text(case, "uuid"), "{case}");
    });
}
