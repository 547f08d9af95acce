//! Reads and writes the bytes of `docs/FORMAT.md` by hand: no serde, no bincode, nothing of the crate.

use std::fmt::Write;

/// A field, by what it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    U8(u8),
    Flag(bool),
    U32(u32),
    U64(u64),
    U128(u128),
    I32(i32),
    /// Bytes of a fixed count.
    Fixed(Vec<u8>),
    /// A count and text.
    Text(String),
    /// A count and bytes.
    Bytes(Vec<u8>),
    /// The number of a variant, and its name for people.
    Variant(u32, &'static str),
    /// There or not.
    Option(bool),
    /// The count of a list.
    Count(u64),
}

/// Named fields in the order in which they lie.
pub type Fields = Vec<(&'static str, Value)>;

/// What is read from.
pub struct Reader<'a> {
    rest: &'a [u8],
    pub fields: Fields,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes, fields: Vec::new() }
    }

    #[track_caller]
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(count);
        self.rest = rest;
        head
    }

    #[track_caller]
    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap()
    }

    pub fn u8(&mut self, name: &'static str) {
        let value = Value::U8(self.array::<1>()[0]);
        self.fields.push((name, value));
    }

    pub fn flag(&mut self, name: &'static str) -> bool {
        let byte = self.array::<1>()[0];
        assert!(byte < 2, "{name}: a flag of {byte}");
        self.fields.push((name, Value::Flag(byte == 1)));
        byte == 1
    }

    pub fn u32(&mut self, name: &'static str) {
        let value = Value::U32(u32::from_le_bytes(self.array()));
        self.fields.push((name, value));
    }

    pub fn u64(&mut self, name: &'static str) {
        let value = Value::U64(u64::from_le_bytes(self.array()));
        self.fields.push((name, value));
    }

    pub fn u128(&mut self, name: &'static str) {
        let value = Value::U128(u128::from_le_bytes(self.array()));
        self.fields.push((name, value));
    }

    pub fn i32(&mut self, name: &'static str) {
        let value = Value::I32(i32::from_le_bytes(self.array()));
        self.fields.push((name, value));
    }

    pub fn fixed(&mut self, name: &'static str, count: usize) {
        let value = Value::Fixed(self.take(count).to_vec());
        self.fields.push((name, value));
    }

    pub fn text(&mut self, name: &'static str) {
        let count = u64::from_le_bytes(self.array());
        let bytes = self.take(count as usize).to_vec();
        self.fields.push((name, Value::Text(String::from_utf8(bytes).unwrap())));
    }

    pub fn bytes(&mut self, name: &'static str) {
        let count = u64::from_le_bytes(self.array());
        let bytes = self.take(count as usize).to_vec();
        self.fields.push((name, Value::Bytes(bytes)));
    }

    /// The number of a variant; what follows depends on it.
    pub fn variant(&mut self, name: &'static str, names: &[&'static str]) -> &'static str {
        let number = u32::from_le_bytes(self.array());
        let variant = names[number as usize];
        self.fields.push((name, Value::Variant(number, variant)));
        variant
    }

    pub fn option(&mut self, name: &'static str) -> bool {
        let byte = self.array::<1>()[0];
        assert!(byte < 2, "{name}: an option of {byte}");
        self.fields.push((name, Value::Option(byte == 1)));
        byte == 1
    }

    pub fn count(&mut self, name: &'static str) -> u64 {
        let count = u64::from_le_bytes(self.array());
        self.fields.push((name, Value::Count(count)));
        count
    }

    /// All bytes must be used up.
    #[track_caller]
    pub fn end(self) -> Fields {
        assert!(self.rest.is_empty(), "{} bytes are left over", self.rest.len());
        self.fields
    }
}

/// The bytes of fields: the inverse of a [`Reader`].
pub fn encode(fields: &[(&'static str, Value)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (_, value) in fields {
        match value {
            Value::U8(value) => out.push(*value),
            Value::Flag(value) | Value::Option(value) => out.push(u8::from(*value)),
            Value::U32(value) | Value::Variant(value, _) => out.extend(value.to_le_bytes()),
            Value::U64(value) | Value::Count(value) => out.extend(value.to_le_bytes()),
            Value::U128(value) => out.extend(value.to_le_bytes()),
            Value::I32(value) => out.extend(value.to_le_bytes()),
            Value::Fixed(bytes) => out.extend(bytes),
            Value::Text(text) => {
                out.extend((text.len() as u64).to_le_bytes());
                out.extend(text.as_bytes());
            }
            Value::Bytes(bytes) => {
                out.extend((bytes.len() as u64).to_le_bytes());
                out.extend(bytes);
            }
        }
    }
    out
}

/// One line for people.
pub fn words(fields: &[(&'static str, Value)]) -> String {
    let mut out = String::new();
    for (name, value) in fields {
        let value = match value {
            Value::U8(value) => value.to_string(),
            Value::Flag(value) => value.to_string(),
            Value::U32(value) => value.to_string(),
            Value::U64(u64::MAX) => "forever".to_owned(),
            Value::U64(value) | Value::Count(value) => value.to_string(),
            Value::U128(value) => format!("{value:032x}"),
            Value::I32(value) => value.to_string(),
            Value::Fixed(bytes) | Value::Bytes(bytes) => hex(bytes),
            Value::Text(text) => format!("{text:?}"),
            Value::Variant(_, name) => (*name).to_owned(),
            Value::Option(there) => if *there { "some" } else { "none" }.to_owned(),
        };
        let _ = write!(out, " {name}={value}");
    }
    out
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// CRC-32 (IEEE, reflected, as in zlib), bit by bit.
pub fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.iter().flat_map(|part| part.iter()) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// Opens an envelope: version 1, fields, CRC over the number and both.
#[track_caller]
pub fn open(number: u64, sealed: &[u8]) -> &[u8] {
    let (body, crc) = sealed.split_at(sealed.len() - 4);
    assert_eq!(crc32(&[&number.to_le_bytes(), body]).to_le_bytes(), crc, "the CRC of {number}");
    assert_eq!(body[0], 1, "the version");
    &body[1..]
}

/// Makes an envelope.
pub fn seal(number: u64, fields: &[u8]) -> Vec<u8> {
    let mut out = vec![1];
    out.extend(fields);
    let crc = crc32(&[&number.to_le_bytes(), &out]);
    out.extend(crc.to_le_bytes());
    out
}
