//! Exact decimal numbers, kept as small integers or as their canonical text.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The farthest power of ten, up or down, at which a number's first digit may stand.
/// `1e1000000` and `1e-1000000` are read, `1e1000001` is refused; a zero may have any exponent.
pub const MAX_EXPONENT: i64 = 1_000_000;

/// Integers of at most this many digits are kept as an `i64`.
const SMALL_DIGITS: usize = 18;

/// The first integer of more than [`SMALL_DIGITS`] digits.
const SMALL_END: u64 = 10_u64.pow(SMALL_DIGITS as u32);

/// Where a written exponent stops counting: far past what the digits of any text in memory could
/// bring back under [`MAX_EXPONENT`], far below what an `i64` holds.
const EXPONENT_CAP: i64 = 1 << 60;

/// An exact decimal number. Equal numbers are equal however they were written.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number(Repr);

/// One representation for one value, so that the derived equality is the equality of values.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    /// Every integer of at most [`SMALL_DIGITS`] digits.
    Small(i64),
    /// The canonical text of every other number.
    Exact(Box<str>),
}

/// Why a text is not a number, and at which of its bytes.
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: &'static str,
    pub(super) next: &'static str,
}

impl Number {
    /// The number, where it is an integer in the range of an `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        match &self.0 {
            Repr::Small(small) => Some(*small),
            Repr::Exact(text) => text.parse().ok(),
        }
    }

    /// The number, where it is an integer in the range of a `u64`.
    pub fn as_u64(&self) -> Option<u64> {
        match &self.0 {
            Repr::Small(small) => u64::try_from(*small).ok(),
            Repr::Exact(text) => text.parse().ok(),
        }
    }

    /// The nearest `f64`; infinite where the number is beyond it.
    pub fn to_f64(&self) -> f64 {
        match &self.0 {
            Repr::Small(small) => *small as f64,
            // The canonical text of a number is always in the grammar of `f64`.
            Repr::Exact(text) => text.parse().unwrap_or(f64::NAN),
        }
    }

    pub(super) fn write(&self, out: &mut String) {
        match &self.0 {
            Repr::Small(small) => write_small(*small, out),
            Repr::Exact(text) => out.push_str(text),
        }
    }

    /// The shortest decimal of a float, as [`super::float`] writes it.
    pub(super) fn from_float(shortest: &str) -> Option<Number> {
        scan(shortest).ok().map(|(number, _)| number)
    }
}

impl From<i64> for Number {
    fn from(integer: i64) -> Self {
        if integer.unsigned_abs() < SMALL_END {
            return Number(Repr::Small(integer));
        }
        Number::from(i128::from(integer))
    }
}

impl From<u64> for Number {
    fn from(integer: u64) -> Self {
        match i64::try_from(integer) {
            Ok(integer) => Number::from(integer),
            Err(_) => Number::from(u128::from(integer)),
        }
    }
}

impl From<i128> for Number {
    fn from(integer: i128) -> Self {
        let digits = integer.unsigned_abs().to_string();
        from_parts(integer < 0, &digits, "", 0).unwrap_or(ZERO)
    }
}

impl From<u128> for Number {
    fn from(integer: u128) -> Self {
        from_parts(false, &integer.to_string(), "", 0).unwrap_or(ZERO)
    }
}

impl FromStr for Number {
    type Err = Error;

    /// Reads a JSON number.
    fn from_str(text: &str) -> Result<Self> {
        match scan(text) {
            Ok((number, end)) if end == text.len() => Ok(number),
            Ok((_, end)) => Err(super::parse::refused(end, "a number ends here", "remove what follows")),
            Err(fault) => Err(super::parse::refused(fault.at, fault.what, fault.next)),
        }
    }
}

impl fmt::Display for Number {
    /// The canonical text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(small) => write!(f, "{small}"),
            Repr::Exact(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Number({self})")
    }
}

const ZERO: Number = Number(Repr::Small(0));

/// Reads the number that `text` begins with; gives it and where it ends.
pub(super) fn scan(text: &str) -> std::result::Result<(Number, usize), Fault> {
    let bytes = text.as_bytes();
    let start = usize::from(bytes.first() == Some(&b'-'));
    let mut small: i64 = 0;
    let mut at = start;
    while let Some(digit @ b'0'..=b'9') = bytes.get(at).copied() {
        if at - start == SMALL_DIGITS {
            return scan_long(text);
        }
        small = small * 10 + i64::from(digit - b'0');
        at += 1;
    }
    match bytes.get(at) {
        Some(b'.' | b'e' | b'E') => scan_long(text),
        _ => {
            check_integer(bytes, start, at)?;
            Ok((Number(Repr::Small(if start == 1 { -small } else { small })), at))
        }
    }
}

/// The same for any length, fraction and exponent.
fn scan_long(text: &str) -> std::result::Result<(Number, usize), Fault> {
    let bytes = text.as_bytes();
    let start = usize::from(bytes.first() == Some(&b'-'));
    let integer_end = digits_end(bytes, start);
    check_integer(bytes, start, integer_end)?;
    let mut at = integer_end;
    let mut fraction = integer_end..integer_end;
    if bytes.get(at) == Some(&b'.') {
        fraction = at + 1..digits_end(bytes, at + 1);
        check_some(fraction.start, fraction.end, "a digit must follow the point")?;
        at = fraction.end;
    }
    let mut exponent = 0;
    if let Some(b'e' | b'E') = bytes.get(at) {
        (exponent, at) = scan_exponent(bytes, at + 1)?;
    }
    // All four places stand beside ASCII bytes of `text`, in order, so both ranges are in it.
    let (integer, fraction) = (&text[start..integer_end], &text[fraction]);
    match from_parts(start == 1, integer, fraction, exponent) {
        Some(number) => Ok((number, at)),
        None => Err(Fault {
            at: 0,
            what: "the number is beyond 10 to the power of 1000000, or nearer to zero than 10 to the power of -1000000",
            next: "send it as a string",
        }),
    }
}

fn scan_exponent(bytes: &[u8], from: usize) -> std::result::Result<(i64, usize), Fault> {
    let negative = bytes.get(from) == Some(&b'-');
    let start = from + usize::from(negative || bytes.get(from) == Some(&b'+'));
    let end = digits_end(bytes, start);
    check_some(start, end, "a digit must follow the exponent sign")?;
    let mut exponent: i64 = 0;
    for digit in bytes.get(start..end).unwrap_or_default() {
        exponent = (exponent * 10 + i64::from(digit - b'0')).min(EXPONENT_CAP / 10);
    }
    Ok((if negative { -exponent } else { exponent }, end))
}

fn digits_end(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn check_some(start: usize, end: usize, what: &'static str) -> std::result::Result<(), Fault> {
    if start == end {
        Err(Fault { at: start, what, next: "write numbers as JSON does, such as 1.5e3" })
    } else {
        Ok(())
    }
}

fn check_integer(bytes: &[u8], start: usize, end: usize) -> std::result::Result<(), Fault> {
    if bytes.get(start) == Some(&b'I') {
        return Err(Fault { at: start, what: "JSON has no infinities", next: "send null or a string" });
    }
    check_some(start, end, "a digit must stand here")?;
    if bytes.get(start) == Some(&b'0') && end - start > 1 {
        let next = "remove the zeros; if they matter, send the number as a string";
        return Err(Fault { at: start, what: "a number must not begin with a zero", next });
    }
    Ok(())
}

/// The number with these digits before and after the point, times ten to the power of `exponent`.
/// None beyond [`MAX_EXPONENT`].
fn from_parts(negative: bool, integer: &str, fraction: &str, exponent: i64) -> Option<Number> {
    let mut digits = String::with_capacity(integer.len() + fraction.len());
    digits.push_str(integer);
    digits.push_str(fraction);
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(ZERO);
    }
    let zeros = digits.len() - significant.len();
    let significant = significant.trim_end_matches('0');
    // The value is 0.significant times ten to the power of `point`. Lengths are below 2^63 and the
    // exponent below 2^60, so i128 holds every sum.
    let point = integer.len() as i128 - zeros as i128 + i128::from(exponent);
    if (point - 1).abs() > i128::from(MAX_EXPONENT) {
        return None;
    }
    let point = point as i64; // in range: just checked
    if (significant.len() as i64..=SMALL_DIGITS as i64).contains(&point) {
        return small(negative, significant, point);
    }
    let mut text = String::with_capacity(significant.len() + 12);
    layout(negative, significant, point, &mut text);
    Some(Number(Repr::Exact(text.into())))
}

/// An integer of `point` digits, at most [`SMALL_DIGITS`], which an `i64` holds.
fn small(negative: bool, significant: &str, point: i64) -> Option<Number> {
    let mut value: i64 = significant.parse().ok()?;
    for _ in significant.len() as i64..point {
        value *= 10;
    }
    Some(Number(Repr::Small(if negative { -value } else { value })))
}

/// ECMAScript's Number::toString for the value 0.`digits` times ten to the power of `point`, where
/// `digits` has no zeros at its ends.
fn layout(negative: bool, digits: &str, point: i64, out: &mut String) {
    if negative {
        out.push('-');
    }
    let length = digits.len() as i64;
    if (length..=21).contains(&point) {
        out.push_str(digits);
        out.extend((length..point).map(|_| '0'));
    } else if (1..=21).contains(&point) {
        // Here 0 < point < length, and digits are ASCII.
        let (before, after) = digits.split_at(point as usize);
        out.extend([before, ".", after]);
    } else if (-5..=0).contains(&point) {
        out.push_str("0.");
        out.extend((point..0).map(|_| '0'));
        out.push_str(digits);
    } else {
        // There is at least one digit, and digits are ASCII.
        let (first, more) = digits.split_at(1);
        out.push_str(first);
        if !more.is_empty() {
            out.extend([".", more]);
        }
        let exponent = point - 1;
        out.push_str(if exponent < 0 { "e-" } else { "e+" });
        out.push_str(&exponent.unsigned_abs().to_string());
    }
}

fn write_small(small: i64, out: &mut String) {
    match u8::try_from(small) {
        Ok(digit @ 0..=9) => out.push(char::from(b'0' + digit)),
        _ => out.push_str(&small.to_string()),
    }
}
