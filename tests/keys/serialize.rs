//! `Value::from_serialize` against what serde_json writes.

use std::collections::BTreeMap;

use onceledger::canonical::Value;
use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};

use crate::parse;

#[track_caller]
fn agrees<T: Serialize>(value: T) {
    let text = serde_json::to_string(&value).unwrap();
    assert_eq!(Value::from_serialize(&value).unwrap(), parse(&text), "{text}");
}

#[track_caller]
fn refused<T: Serialize>(value: T, why: &str) {
    let error = Value::from_serialize(&value).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains(why), "{error}");
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum Plain {
    One,
}

#[derive(Serialize)]
enum Shape {
    Unit,
    Newtype(u8),
    Tuple(u8, Option<&'static str>),
    Struct { z: f64, a: () },
}

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Newtype(i64);

#[derive(Serialize)]
struct Tuple(u8, char);

#[derive(Serialize)]
struct Everything {
    z: bool,
    a: Vec<Shape>,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
    #[serde(flatten)]
    more: BTreeMap<String, u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<u8>,
}

#[test]
fn every_shape_is_written_as_serde_json_writes_it() {
    agrees((Unit, Newtype(-5), Tuple(1, '\u{1f600}'), (), None::<u8>, Some("x")));
    agrees([Shape::Unit, Shape::Newtype(1)]);
    agrees(Everything {
        z: true,
        a: vec![Shape::Tuple(1, None), Shape::Struct { z: 1.5, a: () }],
        bytes: vec![0, 255],
        more: BTreeMap::from([("more".into(), u128::MAX)]),
        skipped: None,
    });
    agrees((i8::MIN, i16::MIN, i32::MIN, i64::MIN, i128::MIN, u8::MAX, u16::MAX, u32::MAX, u64::MAX, u128::MAX));
    agrees([0.1, -0.0, 1.0, 1e21, 1e-7, f64::MAX, f64::MIN_POSITIVE, 5e-324, 9007199254740993.0]);
    agrees([0.1_f32, 16777216.0, f32::MAX, f32::MIN_POSITIVE, 1e-45]);
}

#[test]
fn map_keys_become_text_as_in_serde_json() {
    agrees(BTreeMap::from([(10_u64, 1), (9, 2)]));
    agrees(BTreeMap::from([(-1_i8, 1), (1, 2)]));
    agrees(BTreeMap::from([(i128::MIN, 1)]));
    agrees(BTreeMap::from([(true, 1), (false, 2)]));
    agrees(BTreeMap::from([('z', 1), ('\u{e9}', 2)]));
    agrees(BTreeMap::from([(Plain::One, 1)]));
    refused(BTreeMap::from([((1, 2), 1)]), "map key");
    refused(BTreeMap::from([((), 1)]), "map key");
    refused(BTreeMap::from([(None::<u8>, 1)]), "map key");
    refused(Pairs(vec![(1.5, 1)]), "map key is a float");
}

/// A map of just these pairs, in this order.
struct Pairs<K>(Vec<(K, u8)>);

impl<K: Serialize> Serialize for Pairs<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Either {
    Text(&'static str),
    Number(u8),
}

#[test]
fn duplicates_are_refused_also_when_only_their_text_is_equal() {
    refused(Pairs(vec![("a", 1), ("b", 2), ("a", 3)]), "occurs twice");
    refused(Pairs(vec![(Either::Text("1"), 1), (Either::Number(1), 2)]), "occurs twice");
}

#[test]
fn what_has_no_json_form_is_refused() {
    for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        refused(float, "NaN");
        refused(float as f32, "NaN");
    }
    refused(std::cell::RefCell::new(1).try_borrow_mut().map(|_| Broken).unwrap(), "out of order");
}

struct Broken;

impl Serialize for Broken {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("out of order"))
    }
}

/// What serde_json's `Number` and `RawValue` do when the features that hide text in a struct are on.
struct Hidden(&'static str, &'static str);

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut hidden = serializer.serialize_struct(self.0, 1)?;
        hidden.serialize_field(self.0, self.1)?;
        hidden.end()
    }
}

const NUMBER: &str = "$serde_json::private::Number";
const RAW: &str = "$serde_json::private::RawValue";

#[test]
fn features_of_serde_json_change_nothing() {
    for number in ["9007199254740993", "1.0", "1E400", "-0", "18446744073709551616"] {
        assert_eq!(Value::from_serialize(&Hidden(NUMBER, number)).unwrap(), parse(number));
    }
    for text in [r#"{"b":1.0,"a":[9007199254740993]}"#, " null ", "\"x\""] {
        assert_eq!(Value::from_serialize(&Hidden(RAW, text)).unwrap(), parse(text));
    }
    refused(Hidden(NUMBER, "NaN"), "byte 0");
    refused(Hidden(NUMBER, "1 "), "byte 1");
    refused(Hidden(RAW, r#"{"a":1,"a":2}"#), "occurs twice");
}

/// Nested one-element arrays around a value.
struct Nested<'a, T>(usize, &'a T);

impl<T: Serialize> Serialize for Nested<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            0 => self.1.serialize(serializer),
            more => serializer.collect_seq([Nested(more - 1, self.1)]),
        }
    }
}

#[test]
fn depth_is_limited_as_in_text() {
    let depth = |value: Result<Value, onceledger::Error>| value.map(|_| ()).map_err(|error| error.is_bad_input());
    let ok = Ok(());
    assert_eq!(depth(Value::from_serialize(&Nested(128, &1))), ok);
    assert_eq!(depth(Value::from_serialize(&Nested(129, &1))), Err(true));
    assert_eq!(depth(Value::from_serialize(&Nested(126, &Shape::Tuple(1, None)))), ok);
    assert_eq!(depth(Value::from_serialize(&Nested(127, &Shape::Tuple(1, None)))), Err(true));
    assert_eq!(depth(Value::from_serialize(&Nested(127, &Shape::Newtype(1)))), ok);
    assert_eq!(depth(Value::from_serialize(&Nested(128, &Shape::Newtype(1)))), Err(true));
    assert_eq!(depth(Value::from_serialize(&Nested(127, &Hidden(RAW, "[1]")))), ok);
    assert_eq!(depth(Value::from_serialize(&Nested(128, &Hidden(RAW, "[1]")))), Err(true));
}

/// The standard library picks the odd decimal of two equally near ones; RFC 8785 wants the even
/// one. A digest would differ from what other languages make of the same float.
#[test]
fn halfway_floats_take_the_even_digit() {
    let (mut seed, mut halfway) = (1_u64, 0);
    for round in 0..40_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mantissa = (seed >> 11) >> (round % 53) << (round % 53);
        let float = mantissa as f64 * 2_f64.powi((seed % 61) as i32 - 40);
        let single = (mantissa >> 29) as f32 * 2_f32.powi((seed % 61) as i32 - 40);
        agrees((float, single));
        let differs = |ours: String, library: String| ours != crate::canonical(&library);
        let value = |text: Value| text.to_canonical();
        halfway += u32::from(differs(value(Value::from_serialize(&float).unwrap()), format!("{float:e}")));
        halfway += u32::from(differs(value(Value::from_serialize(&single).unwrap()), format!("{single:e}")));
    }
    println!("{halfway} floats where the even digit is not the library's");
    assert!(halfway >= 20, "{halfway}");
}

#[test]
fn an_error_inside_a_value_is_told_by_whoever_passes_it_on() {
    /// Serializes a float, and names the field where that fails.
    struct Named(f64);
    impl serde::Serialize for Named {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_f64(self.0).map_err(|error| serde::ser::Error::custom(format!("amount: {error}")))
        }
    }
    let refused = Value::from_serialize(&Named(f64::NAN)).unwrap_err().to_string();
    assert!(refused.contains("amount: ") && refused.contains("NaN"), "{refused}");
}
