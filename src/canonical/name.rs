//! A serde serializer for map keys: strings, and what has one spelling as a string.

use serde::ser::{Impossible, Serialize, Serializer};

use super::serialize::{Done, Failed, failed};

/// Reads a map key as serde_json does: strings, and what has one spelling as a string.
pub(super) struct Name;

/// Integers as names.
macro_rules! names {
    ($($method:ident: $from:ty),*) => {
        $(fn $method(self, key: $from) -> Done<Box<str>> {
            Ok(key.to_string().into())
        })*
    };
}

fn no_name<T>(what: &str) -> Done<T> {
    Err(failed(format!("a map key is {what}"), "use strings as map keys"))
}

impl Serializer for Name {
    type Ok = Box<str>;
    type Error = Failed;
    type SerializeSeq = Impossible<Box<str>, Failed>;
    type SerializeTuple = Impossible<Box<str>, Failed>;
    type SerializeTupleStruct = Impossible<Box<str>, Failed>;
    type SerializeTupleVariant = Impossible<Box<str>, Failed>;
    type SerializeMap = Impossible<Box<str>, Failed>;
    type SerializeStruct = Impossible<Box<str>, Failed>;
    type SerializeStructVariant = Impossible<Box<str>, Failed>;

    names!(
        serialize_bool: bool, serialize_char: char, serialize_i8: i8, serialize_i16: i16,
        serialize_i32: i32, serialize_i64: i64, serialize_i128: i128, serialize_u8: u8,
        serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128
    );

    fn serialize_str(self, text: &str) -> Done<Box<str>> {
        Ok(text.into())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done<Box<str>> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, key: &T) -> Done<Box<str>> {
        key.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, key: &T) -> Done<Box<str>> {
        key.serialize(self)
    }

    fn serialize_f32(self, _: f32) -> Done<Box<str>> {
        no_name("a float")
    }

    fn serialize_f64(self, _: f64) -> Done<Box<str>> {
        no_name("a float")
    }

    fn serialize_bytes(self, _: &[u8]) -> Done<Box<str>> {
        no_name("bytes")
    }

    fn serialize_none(self) -> Done<Box<str>> {
        no_name("nothing")
    }

    fn serialize_unit(self) -> Done<Box<str>> {
        no_name("nothing")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done<Box<str>> {
        no_name("nothing")
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Done<Box<str>> {
        no_name("an enum with a value")
    }

    fn serialize_seq(self, _: Option<usize>) -> Done<Self::SerializeSeq> {
        no_name("an array")
    }

    fn serialize_tuple(self, _: usize) -> Done<Self::SerializeTuple> {
        no_name("an array")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Done<Self::SerializeTupleStruct> {
        no_name("an array")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Done<Self::SerializeTupleVariant> {
        no_name("an array")
    }

    fn serialize_map(self, _: Option<usize>) -> Done<Self::SerializeMap> {
        no_name("a map")
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Done<Self::SerializeStruct> {
        no_name("a struct")
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Done<Self::SerializeStructVariant> {
        no_name("a struct")
    }
}
