//! A strict JSON reader: one pass over the bytes, nothing repaired, every refusal with its place.

use super::{MAX_DEPTH, Object, Value, number, shown};
use crate::error::{Error, Result};

/// A refusal of JSON text at a byte.
pub(super) fn refused(at: usize, what: &str, next: &str) -> Error {
    Error::bad_input(format!("JSON refused at byte {at}: {what}")).next(next)
}

pub(super) fn document(text: &str) -> Result<Value> {
    document_inside(text, 0)
}

/// A whole text that stands inside of `depth` containers.
pub(super) fn document_inside(text: &str, depth: usize) -> Result<Value> {
    let mut parser = Parser { text, at: 0 };
    parser.skip_space();
    let value = parser.value(depth)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.refused("the value ends here", "send one JSON value and nothing after it")),
    }
}

/// `at` never passes the end of `text`, and never stops inside a character: it moves over single
/// bytes only where they are ASCII.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn refused(&self, what: &str, next: &str) -> Error {
        refused(self.at, what, next)
    }

    fn since(&self, start: usize) -> &'a str {
        // `start` is an earlier `at`: in range, and a border of characters.
        &self.text[start..self.at]
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Moves past `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// A value inside of `depth` containers.
    fn value(&mut self, depth: usize) -> Result<Value> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => Err(self.no_value()),
            None => Err(self.refused("the text ends where a value should be", "send the whole JSON text")),
        }
    }

    fn no_value(&self) -> Error {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with('\u{feff}') {
            self.refused("a byte order mark is not JSON", "send UTF-8 without a byte order mark")
        } else if rest.starts_with("NaN") || rest.starts_with("Infinity") {
            self.refused("JSON has no NaN and no infinities", "send null or a string")
        } else {
            self.refused("no JSON value begins here", "send strict JSON (RFC 8259)")
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value> {
        if self.text.as_bytes().get(self.at..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.no_value())
    }

    fn number(&mut self) -> Result<Value> {
        match number::scan(self.text.get(self.at..).unwrap_or_default()) {
            Ok((number, length)) => {
                self.at += length;
                Ok(Value::Number(number))
            }
            Err(fault) => Err(refused(self.at + fault.at, fault.what, fault.next)),
        }
    }

    /// Moves past the bracket that opens one more container.
    fn open(&mut self, depth: usize) -> Result<usize> {
        if depth == MAX_DEPTH {
            return Err(self.refused("more than 128 containers are nested", "send flatter arguments"));
        }
        self.at += 1;
        self.skip_space();
        Ok(depth + 1)
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        let depth = self.open(depth)?;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.skip_space();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            self.comma("a comma or `]` must stand here")?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        let start = self.at;
        let depth = self.open(depth)?;
        let mut members = Vec::new();
        if self.take(b'}') {
            return Ok(Value::Object(Object::default()));
        }
        loop {
            let name = self.name()?;
            members.push((name, self.value(depth)?));
            self.skip_space();
            if self.take(b'}') {
                break;
            }
            self.comma("a comma or `}` must stand here")?;
        }
        match Object::sorted(members) {
            Ok(object) => Ok(Value::Object(object)),
            Err(name) => Err(self.duplicate(start, &name)),
        }
    }

    fn comma(&mut self, what: &str) -> Result<()> {
        if !self.take(b',') {
            return Err(self.refused(what, "send the whole text as strict JSON (RFC 8259)"));
        }
        self.skip_space();
        Ok(())
    }

    /// A name and its colon.
    fn name(&mut self) -> Result<Box<str>> {
        if self.peek() != Some(b'"') {
            return Err(self.refused("a name in quotes must stand here", "send strict JSON (RFC 8259)"));
        }
        let name = self.string()?;
        self.skip_space();
        if !self.take(b':') {
            return Err(self.refused("a colon must follow the name", "send strict JSON (RFC 8259)"));
        }
        self.skip_space();
        Ok(name)
    }

    /// Finds the second place of `name` in the object that begins at `start`, which was read to
    /// its end before.
    fn duplicate(&mut self, start: usize, name: &str) -> Error {
        self.at = start + 1;
        let mut seen = false;
        loop {
            self.skip_space();
            let place = self.at;
            match self.name() {
                Ok(found) if seen && &*found == name => self.at = place,
                Ok(found) if self.value(0).is_ok() => {
                    seen |= &*found == name;
                    self.skip_space();
                    if self.take(b',') {
                        continue;
                    }
                }
                _ => {}
            }
            let what = format!("the name {} occurs twice in one object", shown(name));
            return self.refused(&what, "give every name once; which of two values is meant nobody knows");
        }
    }

    fn string(&mut self) -> Result<Box<str>> {
        let open = self.at;
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        let plain = self.since(start);
        if self.take(b'"') {
            return Ok(plain.into());
        }
        self.string_with_escapes(open, plain)
    }

    /// Moves past everything that stands for itself in a string.
    fn skip_plain(&mut self) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
        self.at += rest.iter().position(special).unwrap_or(rest.len());
    }

    fn string_with_escapes(&mut self, open: usize, plain: &str) -> Result<Box<str>> {
        let mut out = String::with_capacity(plain.len() + 16);
        out.push_str(plain);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out.into());
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => {
                    let next = "escape it, such as \\n or \\u0000";
                    return Err(self.refused("a string holds a bare control character", next));
                }
                None => {
                    return Err(refused(open, "the string has no end", "send the whole JSON text"));
                }
            }
            let start = self.at;
            self.skip_plain();
            out.push_str(self.since(start));
        }
    }

    fn escape(&mut self) -> Result<char> {
        let kind = self.text.as_bytes().get(self.at + 1).copied();
        let plain = match kind {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.refused("JSON has no such escape", "write a backslash as \\\\")),
        };
        self.at += 2;
        Ok(plain)
    }

    /// One `\uXXXX`, or two that are a pair of surrogates.
    fn unicode(&mut self) -> Result<char> {
        let start = self.at;
        let first = self.code_unit()?;
        let lone = || refused(start, "a lone surrogate is no character", "send both halves, or none");
        match first {
            0xD800..0xDC00 => {
                let pair = self.text.get(self.at..).is_some_and(|rest| rest.starts_with("\\u"));
                let second = if pair { self.code_unit()? } else { 0 };
                if !(0xDC00..0xE000).contains(&second) {
                    return Err(lone());
                }
                char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)).ok_or_else(lone)
            }
            // None for the second halves, which stand alone here.
            unit => char::from_u32(unit).ok_or_else(lone),
        }
    }

    fn code_unit(&mut self) -> Result<u32> {
        let hex = self.text.get(self.at + 2..self.at + 6).unwrap_or_default();
        let digits = hex.len() == 4 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let (true, Ok(unit)) = (digits, u32::from_str_radix(hex, 16)) {
            self.at += 6;
            return Ok(unit);
        }
        Err(self.refused("four hex digits must follow \\u", "write it as \\u00e9"))
    }
}
