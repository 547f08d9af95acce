//! Canonical JSON by table: pointers, numbers, limits.

use onceledger::canonical::{MAX_DEPTH, Number, Object, Value};

use crate::{canonical, parse};

#[test]
fn floats_are_written_as_rfc_8785_appendix_b_does() {
    let table = [
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ];
    for (bits, text) in table {
        assert_eq!(Value::from_serialize(&f64::from_bits(bits)).unwrap().to_canonical(), text);
        assert_eq!(canonical(text), text);
    }
}

#[test]
fn pointers_follow_rfc_6901() {
    let value =
        parse(r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"~1":9}"#);
    let table = [
        ("/foo", r#"["bar","baz"]"#),
        ("/foo/0", "\"bar\""),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
        ("/~01", "9"),
    ];
    for (pointer, text) in table {
        assert_eq!(value.pointer(pointer).unwrap().unwrap().to_canonical(), text, "{pointer}");
    }
    assert_eq!(value.pointer("").unwrap(), Some(&value));
    for nothing in [
        "/bar",
        "/foo/2",
        "/foo/-",
        "/foo/00",
        "/foo/+1",
        "/foo/",
        "/foo/0/0",
        "/a~1b/x",
        "/foo/99999999999999999999999",
    ] {
        assert_eq!(value.pointer(nothing).unwrap(), None, "{nothing}");
    }
    for bad in ["foo", " /foo", "/m~n", "/m~", "/~2", "~0", "#/foo"] {
        let error = value.pointer(bad).unwrap_err();
        assert!(error.is_bad_input() && error.advice().is_some(), "{bad}: {error}");
    }
}

#[test]
fn hostile_numbers_neither_hang_nor_grow() {
    let zeros = "0".repeat(1_000_000);
    assert_eq!(canonical(&format!("0.{zeros}1e1000001")), "1");
    assert_eq!(canonical(&format!("1{zeros}e-1000000")), "1");
    assert_eq!(canonical(&format!("1{zeros}")), "1e+1000000");
    assert_eq!(canonical(&format!("0.{zeros}")), "0");
    for text in [format!("1{zeros}0"), format!("1e{zeros}9999999999"), format!("0.{zeros}1")] {
        assert!(Value::parse(&text).unwrap_err().is_bad_input());
    }
    assert_eq!(canonical(&format!("1e{zeros}2")), "100");
}

#[test]
fn depth_is_limited_where_it_says() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(canonical(&nested(MAX_DEPTH)), nested(MAX_DEPTH));
    for depth in [MAX_DEPTH + 1, 1_000_000] {
        let error = Value::parse(&nested(depth)).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("at byte 128"), "{error}");
    }
}

#[test]
fn numbers_answer_in_the_types_that_hold_them() {
    let number = |text: &str| text.parse::<Number>().unwrap();
    assert_eq!(number("1e2").as_i64(), Some(100));
    assert_eq!(number("-9223372036854775808").as_i64(), Some(i64::MIN));
    assert_eq!(number("9223372036854775808").as_i64(), None);
    assert_eq!(number("18446744073709551615").as_u64(), Some(u64::MAX));
    assert_eq!((number("-1").as_u64(), number("1.5").as_i64()), (None, None));
    assert_eq!((number("1.5").to_f64(), number("1e400").to_f64()), (1.5, f64::INFINITY));
    assert_eq!(Number::from(u64::MAX), number("18446744073709551615"));
    assert_eq!(Number::from(i64::MIN), number("-9223372036854775808"));
    assert_eq!(Number::from(i128::MIN), number(&i128::MIN.to_string()));
    assert_eq!(Number::from(u128::MAX), number(&u128::MAX.to_string()));
    assert_eq!(Number::from(u128::MAX).to_string(), "3.40282366920938463463374607431768211455e+38");
    for bad in ["", " 1", "1 ", "1x", "NaN", "-", "--1"] {
        assert!(bad.parse::<Number>().unwrap_err().is_bad_input(), "{bad:?}");
    }
}

#[test]
fn what_no_json_is_is_named() {
    for (text, named) in [
        ("NaN", "no NaN and no infinities"),
        ("Infinity", "no NaN and no infinities"),
        ("[NaN]", "no NaN and no infinities"),
        ("\u{feff}1", "byte order mark"),
        ("nil", "no JSON value begins here"),
    ] {
        let refused = Value::parse(text).unwrap_err().to_string();
        assert!(refused.contains(named), "{text}: {refused}");
    }
}

#[test]
fn an_integer_is_the_same_number_however_it_was_made() {
    // Of 17, 18, 19 and more digits: they are kept in two ways.
    for power in [0, 1, 16, 17, 18] {
        for integer in [10_i64.pow(power) - 1, 10_i64.pow(power), 10_i64.pow(power) + 1] {
            for integer in [integer, -integer] {
                let read: Number = integer.to_string().parse().unwrap();
                assert_eq!(Number::from(integer), read);
                assert_eq!(Number::from(i128::from(integer)), read);
                assert_eq!(u64::try_from(integer).map_or(read.clone(), Number::from), read);
                assert_eq!(format!("{read}"), integer.to_string());
                assert_eq!(format!("{read:?}"), format!("Number({integer})"));
            }
        }
    }
}

#[test]
fn objects_made_by_hand_are_sorted_and_refuse_duplicates() {
    let member = |name: &str| (Box::from(name), Value::Null);
    let object = Object::new([member("b"), member("a")]).unwrap();
    assert_eq!(object.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((object.len(), object.is_empty(), object.get("a").is_some()), (2, false, true));
    assert!(Object::new([member("b"), member("a"), member("b")]).unwrap_err().is_bad_input());
}

#[test]
fn accessors_answer_for_their_own_kind_only() {
    let value = parse(r#"{"n":null,"b":true,"i":7,"s":"x","a":[1],"o":{}}"#);
    let get = |name: &str| value.get(name).unwrap();
    assert!(get("n").is_null() && !get("b").is_null());
    assert_eq!(get("b").as_bool(), Some(true));
    assert_eq!(get("i").as_number().and_then(Number::as_i64), Some(7));
    assert_eq!(get("s").as_str(), Some("x"));
    assert_eq!(get("a").as_array().map(<[Value]>::len), Some(1));
    assert!(get("o").as_object().is_some_and(Object::is_empty));
    assert!(value.get("x").is_none() && get("s").get("x").is_none());
    assert!(get("n").as_bool().is_none() && get("n").as_number().is_none() && get("n").as_str().is_none());
    assert!(get("n").as_array().is_none() && get("n").as_object().is_none());
}

#[test]
fn long_names_are_cut_in_error_texts() {
    let name = "n".repeat(100_000);
    let error = Value::parse(&format!("{{\"{name}\":1,\"{name}\":2}}")).unwrap_err().to_string();
    assert!(error.len() < 400, "{error}");
}
