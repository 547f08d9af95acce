//! Properties over generated values and texts.

use onceledger::canonical::Value;
use onceledger::{Key, Scope, Selection};
use proptest::prelude::*;
use serde_json::Value as Json;

use crate::parse;

/// Text that often holds what sorts or escapes in a special way.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{0,3}",
        proptest::collection::vec(any::<char>(), 0..4).prop_map(String::from_iter),
        proptest::collection::vec(
            prop::sample::select(vec![
                '\u{d7ff}',
                '\u{e000}',
                '\u{ffff}',
                '\u{10000}',
                '\u{10ffff}',
                '"',
                '\\',
                '\0',
                '\u{1f}',
                '/',
                '~'
            ]),
            0..4
        )
        .prop_map(String::from_iter),
    ]
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        (-20..20_i64).prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        word().prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            proptest::collection::btree_map(word(), inner, 0..6)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

/// The text of a value with members turned around by `seed`, white space put in, and characters
/// escaped that need not be.
fn shuffled(value: &Json, seed: &mut u64, out: &mut String) {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    out.push_str(["", " ", "\n\t", "\r "][(*seed >> 60) as usize % 4]);
    match value {
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                shuffled(item, seed, out);
            }
            out.push(']');
        }
        Json::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by_key(|(name, _)| {
                name.bytes().fold(*seed, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
            });
            out.push('{');
            for (at, (name, item)) in members.into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                escaped(name, *seed, out);
                out.push(':');
                shuffled(item, seed, out);
            }
            out.push('}');
        }
        Json::String(text) => escaped(text, *seed, out),
        other => out.push_str(&other.to_string()),
    }
    out.push_str(["", " "][(*seed >> 50) as usize % 2]);
}

fn escaped(text: &str, seed: u64, out: &mut String) {
    out.push('"');
    for (at, char) in text.chars().enumerate() {
        if char < ' ' || char == '"' || char == '\\' || (seed >> (at % 40)) & 1 == 1 {
            for unit in char.encode_utf16(&mut [0; 2]) {
                out.push_str(&if at % 2 == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") });
            }
        } else {
            out.push(char);
        }
    }
    out.push('"');
}

/// A JSON number by its pieces.
fn number() -> impl Strategy<Value = String> {
    let exponent = prop_oneof![
        Just(String::new()),
        (-30..30_i32).prop_map(|x| format!("e{x}")),
        (0..30).prop_map(|x| format!("E+0{x}"))
    ];
    (
        "-?",
        "(0|[1-9][0-9]{0,2}|[1-9]0{15,25}|[1-9][0-9]{14,40})",
        "(|\\.0|\\.[0-9]{1,4}|\\.0{5,8}[0-9]|\\.[0-9]{15,30})",
        exponent,
    )
        .prop_map(|(sign, whole, fraction, exponent)| sign + &whole + &fraction + &exponent)
}

/// The value of a number as an integer times ten to the power of -100, in digits.
fn scaled(text: &str) -> (bool, String) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let zeros = 100 + exponent.parse::<i64>().unwrap() - fraction.len() as i64;
    let digits = format!("{}{fraction}{}", whole.trim_start_matches('-'), "0".repeat(usize::try_from(zeros).unwrap()));
    let digits = digits.trim_start_matches('0').to_owned();
    (text.starts_with('-') && !digits.is_empty(), digits)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn case_48_any_order_and_spelling_gives_one_digest(value in json(), seed: u64) {
        let (mut one, mut two) = (String::new(), String::new());
        shuffled(&value, &mut seed.clone(), &mut one);
        shuffled(&value, &mut !seed, &mut two);
        prop_assert_eq!(parse(&one).to_canonical(), parse(&two).to_canonical());
        let select = |text: &str| Selection::by_hand(&parse(text), &crate::NONE).unwrap();
        prop_assert_eq!(select(&one), select(&two));
    }

    #[test]
    fn parsing_the_canonical_text_gives_the_value_back(value in json()) {
        let value = Value::from_serialize(&value).unwrap();
        let text = value.to_canonical();
        let again = parse(&text);
        prop_assert_eq!(again.to_canonical(), text);
        prop_assert_eq!(again, value);
    }

    #[test]
    fn serde_json_text_and_serde_json_value_agree(value in json()) {
        prop_assert_eq!(Value::from_serialize(&value).unwrap(), parse(&value.to_string()));
    }

    #[test]
    fn names_are_in_the_order_of_utf_16(names in proptest::collection::btree_set(word(), 0..12)) {
        let object: serde_json::Map<String, Json> = names.iter().map(|name| (name.clone(), Json::Null)).collect();
        let value = Value::from_serialize(&object).unwrap();
        let mut sorted: Vec<String> = names.into_iter().collect();
        sorted.sort_by_key(|name| name.encode_utf16().collect::<Vec<_>>());
        let members = value.as_object().unwrap();
        prop_assert_eq!(members.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>(), sorted.clone());
        for name in &sorted {
            prop_assert!(members.get(name).is_some());
        }
    }

    #[test]
    fn number_texts_are_equal_exactly_when_values_are(a in number(), b in number()) {
        let (one, two) = (parse(&a), parse(&b));
        let equal = scaled(&a) == scaled(&b);
        prop_assert_eq!(one == two, equal);
        prop_assert_eq!(one.to_canonical() == two.to_canonical(), equal);
        prop_assert_eq!(scaled(&one.to_canonical()), scaled(&a));
    }

    #[test]
    fn a_number_spelled_otherwise_is_the_same(a in number(), shift in 0..40_usize) {
        let (sign, digits) = scaled(&a);
        let digits = if digits.is_empty() { "0".to_owned() } else { digits };
        let zeros = if digits == "0" { String::new() } else { "0".repeat(shift) };
        let other = format!("{}{digits}{zeros}.{}e-{}", if sign { "-" } else { "" }, "0".repeat(shift + 1), 100 + zeros.len());
        prop_assert_eq!(parse(&other), parse(&a));
    }

    #[test]
    fn floats_keep_their_value(bits: u64) {
        let float = f64::from_bits(bits);
        match Value::from_serialize(&float) {
            Ok(value) => prop_assert_eq!(value.as_number().unwrap().to_f64(), float),
            Err(_) => prop_assert!(!float.is_finite()),
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Value::parse_bytes(&bytes);
    }

    #[test]
    fn a_damaged_text_is_read_as_serde_json_reads_it(value in json(), seed: u64, at: prop::sample::Index, byte in "[\\[\\]{}:,\"\\\\0-9eE.+\\-tfn ud\0\u{7f}a]") {
        let mut text = String::new();
        shuffled(&value, &mut seed.clone(), &mut text);
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        match seed % 3 {
            0 => _ = bytes.remove(at),
            1 => bytes[at] = byte.as_bytes()[0],
            _ => bytes.insert(at, byte.as_bytes()[0]),
        }
        let theirs: Result<Json, _> = serde_json::from_slice(&bytes);
        match (Value::parse_bytes(&bytes), theirs) {
            (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("number out of range"), "{}", error),
            (Err(error), Ok(_)) => {
                let text = error.to_string();
                prop_assert!(text.contains("occurs twice") || text.contains("to the power"), "{}", text);
            }
            (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn different_parts_make_different_keys(
        a in proptest::collection::vec(proptest::collection::vec(0..3_u8, 1..4), 0..4),
        b in proptest::collection::vec(proptest::collection::vec(0..3_u8, 1..4), 0..4),
    ) {
        let scope = Scope::new("s").unwrap();
        let key = |parts: &[Vec<u8>]| Key::action(&scope, "a", parts).unwrap();
        prop_assert_eq!(key(&a) == key(&b), a == b);
    }

    #[test]
    fn pointers_count_once_and_in_no_order(value in json(), picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..6)) {
        let value = Value::from_serialize(&Json::from(vec![value.clone(), value])).unwrap();
        let all = ["", "/0", "/1", "/0/0", "/1/a", "/0/a", "/1/2"];
        let picked: Vec<&str> = picks.iter().map(|pick| all[pick.index(all.len())]).collect();
        let mut other = picked.clone();
        other.reverse();
        other.extend(&picked);
        let one = Selection::by_hand(&value, &picked).unwrap();
        prop_assert_eq!(one, Selection::by_hand(&value, &other).unwrap());
        let there: Vec<&str> = picked.iter().copied().filter(|pointer| value.pointer(pointer).unwrap().is_some()).collect();
        let one = Selection::tool(&value, &there, &picked).unwrap();
        prop_assert_eq!(one, Selection::tool(&value, &there, &other).unwrap());
    }
}
