//! Exact canonical JSON: one text for one value, whoever wrote it and however.
//!
//! The form is RFC 8785 (names sorted by UTF-16 code units, its string escapes, no white space)
//! except that numbers are exact decimals and never pass through a float:
//!
//! - a number's digits are its decimal digits without leading and trailing zeros, and they are
//!   laid out as ECMAScript lays out a number: plainly while the point falls within the first 21
//!   places (`100`, `12.5`) or at most six zeros follow it (`0.000001`), and as `d.ddde+x` or
//!   `d.ddde-x` everywhere else;
//! - so the text is RFC 8785's own wherever RFC 8785 keeps the value, and holds every digit
//!   where it would not: `9007199254740993` stays what it is. Equal values have equal text and
//!   equal text means equal values. `1`, `1.0` and `10e-1` are `1`; `-0` is `0`.
//!
//! Strings are kept as they are: no Unicode normalisation, so composed and decomposed forms
//! differ. Refused, with a `BadInput` that names the byte: duplicate names, lone surrogates, more
//! than [`MAX_DEPTH`] nested containers, numbers beyond [`MAX_EXPONENT`], anything after the value,
//! a byte order mark, and whatever else RFC 8259 does not allow. Nothing is repaired.
//!
//! This module reads no map order and no serde_json, so no feature that another crate switches on
//! can change a digest.

mod float;
mod name;
mod number;
mod parse;
mod serialize;

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde::Serialize;

pub use self::number::{MAX_EXPONENT, Number};
use crate::error::{Error, Result};

/// The version of the canonical form that this build writes. It is stored with every record.
pub const CANONICAL_VERSION: u8 = 1;

/// How many arrays and objects may be nested; `[[1]]` has two.
pub const MAX_DEPTH: usize = 128;

/// A JSON value that has exactly one text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An exact decimal number.
    Number(Number),
    /// A string, not normalised.
    String(Box<str>),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Object),
}

impl Value {
    /// Reads one JSON text (RFC 8259).
    ///
    /// # Errors
    /// `BadInput` with the byte offset; the module's head lists what is refused.
    pub fn parse(text: &str) -> Result<Value> {
        parse::document(text)
    }

    /// Reads one JSON text from bytes.
    ///
    /// # Errors
    /// As [`Value::parse`]; bytes that are not UTF-8 are `BadInput` too.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Value> {
        match std::str::from_utf8(bytes) {
            Ok(text) => parse::document(text),
            Err(error) => Err(parse::refused(
                error.valid_up_to(),
                "the bytes are not UTF-8",
                "send JSON encoded as UTF-8, without lone surrogates",
            )),
        }
    }

    /// The JSON form of any serializable value, exactly: what [`Value::parse`] makes of the text
    /// that serde_json writes for it, but for three things that are refused here: NaN and the
    /// infinities (serde_json writes `null`), map keys that are floats, and names that occur twice.
    ///
    /// A float is the shortest decimal that reads back as the same float of its own width, so
    /// `0.1_f32` is `0.1`.
    ///
    /// # Errors
    /// `BadInput` for what has no exact JSON form, and for what the value's own `Serialize` reports.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Value> {
        serialize::value(value)
    }

    /// The canonical text.
    pub fn to_canonical(&self) -> String {
        let mut out = String::with_capacity(128);
        self.write_canonical(&mut out);
        out
    }

    /// Appends the canonical text to `out`.
    pub fn write_canonical(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(number) => number.write(out),
            Value::String(text) => write_string(text, out),
            Value::Array(items) => write_array(items, out),
            Value::Object(object) => object.write(out),
        }
    }

    /// The value at a JSON pointer (RFC 6901), or `None` where there is nothing.
    ///
    /// The empty pointer is the whole value. An array index has no leading zeros; `-` never exists.
    ///
    /// # Errors
    /// `BadInput` for a pointer that does not begin with `/`, or holds a `~` that is neither `~0`
    /// nor `~1`.
    pub fn pointer(&self, pointer: &str) -> Result<Option<&Value>> {
        check_pointer(pointer)?;
        let mut here = self;
        for token in pointer.split('/').skip(1) {
            match here.child(token) {
                Some(child) => here = child,
                None => return Ok(None),
            }
        }
        Ok(Some(here))
    }

    fn child(&self, token: &str) -> Option<&Value> {
        match self {
            Value::Object(object) if token.contains('~') => object.get(&token.replace("~1", "/").replace("~0", "~")),
            Value::Object(object) => object.get(token),
            Value::Array(items) => items.get(array_index(token)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    /// The member of this name, where this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The bool, where this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The number, where this is one.
    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The string, where this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The items, where this is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The object, where this is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
}

/// The members of a JSON object: no name twice, in canonical order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Object {
    /// Sorted by [`name_order`], strictly.
    members: Vec<(Box<str>, Value)>,
}

impl Object {
    /// An object of these members, given in any order.
    ///
    /// # Errors
    /// `BadInput` for a name that occurs twice.
    pub fn new(members: impl IntoIterator<Item = (Box<str>, Value)>) -> Result<Object> {
        Object::sorted(members.into_iter().collect()).map_err(|name| {
            Error::bad_input(format!("the name {} occurs twice in one object", shown(&name)))
                .next("give every name once")
        })
    }

    /// Sorts what is not sorted. A name that occurs twice is the error.
    fn sorted(mut members: Vec<(Box<str>, Value)>) -> std::result::Result<Object, Box<str>> {
        if !members.is_sorted_by(|(a, _), (b, _)| name_order(a, b).is_lt()) {
            members.sort_by(|(a, _), (b, _)| name_order(a, b));
            let mut previous: Option<&str> = None;
            for (name, _) in &members {
                if previous == Some(name) {
                    return Err(name.clone());
                }
                previous = Some(name);
            }
        }
        Ok(Object { members })
    }

    /// The member of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let at = self.members.binary_search_by(|(other, _)| name_order(other, name)).ok()?;
        self.members.get(at).map(|(_, value)| value)
    }

    /// The members in canonical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.members.iter().map(|(name, value)| (&**name, value))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (at, (name, value)) in self.members.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            write_string(name, out);
            out.push(':');
            value.write_canonical(out);
        }
        out.push('}');
    }
}

fn write_array(items: &[Value], out: &mut String) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        item.write_canonical(out);
    }
    out.push(']');
}

/// A string as RFC 8785 writes it: the short escapes, `\u00xx` for the other control characters,
/// everything else as it is.
fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        // `at` is the place of an ASCII byte, so it is a border of characters.
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let mut chars = tail.chars();
        if let Some(special) = chars.next() {
            write_escape(special, out);
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

fn write_escape(special: char, out: &mut String) {
    match special {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\u{c}' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        // Writing to a String cannot fail.
        other => _ = write!(out, "\\u{:04x}", u32::from(other)),
    }
}

/// The order of UTF-16 code units. It is the order of UTF-8 bytes but for one thing: characters
/// past U+FFFF (first byte 0xF0 and up) have surrogates in UTF-16, which come before U+E000 to
/// U+FFFF (first byte 0xEE or 0xEF). No other byte of a character reaches 0xEE, so the first
/// difference decides.
fn name_order(a: &str, b: &str) -> Ordering {
    match a.bytes().zip(b.bytes()).find(|(x, y)| x != y) {
        None => a.len().cmp(&b.len()),
        Some((x @ 0xEE.., y @ 0xEE..)) if (x >= 0xF0) != (y >= 0xF0) => y.cmp(&x),
        Some((x, y)) => x.cmp(&y),
    }
}

fn check_pointer(pointer: &str) -> Result<()> {
    let tildes = pointer.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    let begins = pointer.is_empty() || pointer.starts_with('/');
    if begins && tildes {
        return Ok(());
    }
    let (what, next) = if begins {
        ("has a `~` that is neither `~0` nor `~1`", "write `~0` for `~` and `~1` for `/` in a name")
    } else {
        ("does not begin with `/`", "write `/order/id` for the member `id` of the member `order`")
    };
    Err(Error::bad_input(format!("the JSON pointer {} {what}", shown(pointer))).next(next))
}

fn array_index(token: &str) -> Option<usize> {
    let digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    let plain = token == "0" || !token.starts_with('0');
    if digits && plain { token.parse().ok() } else { None }
}

/// A name for an error text: quoted, escaped, cut after 64 characters.
pub(crate) fn shown(name: &str) -> String {
    let mut chars = name.chars();
    let head: String = chars.by_ref().take(64).collect();
    let cut = if chars.next().is_some() { ".." } else { "" };
    format!("{head:?}{cut}")
}
