//! A serde serializer that builds a [`Value`]. It gives what serde_json's text would parse to, and
//! knows the two names under which serde_json hides numbers and raw text, so that a
//! `serde_json::Value` means the same whatever features another crate switched on there.

use std::fmt::{self, Display};

use serde::ser::{self, Serialize, Serializer};

use super::name::Name;
use super::{MAX_DEPTH, Number, Object, Value, float, shown};
use crate::error::Error;

const NUMBER_TOKEN: &str = "$serde_json::private::Number";
const RAW_TOKEN: &str = "$serde_json::private::RawValue";

pub(super) fn value<T: Serialize + ?Sized>(value: &T) -> crate::Result<Value> {
    value.serialize(Builder { depth: 0 }).map_err(|failed| failed.0)
}

/// Our error inside serde.
#[derive(Debug)]
pub(super) struct Failed(pub(super) Error);

impl Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {}

impl ser::Error for Failed {
    fn custom<T: Display>(message: T) -> Self {
        failed(format!("the value cannot be serialized: {message}"), "see its Serialize implementation")
    }
}

pub(super) fn failed(what: impl Into<String>, next: &str) -> Failed {
    Failed(Error::bad_input(what).next(next))
}

pub(super) type Done<T> = Result<T, Failed>;

/// Builds a value inside of `depth` containers.
#[derive(Clone, Copy)]
struct Builder {
    depth: usize,
}

impl Builder {
    /// The builder for what is inside one more container.
    fn inside(self) -> Done<Builder> {
        if self.depth == MAX_DEPTH {
            return Err(failed("more than 128 containers are nested in the value", "send flatter arguments"));
        }
        Ok(Builder { depth: self.depth + 1 })
    }

    fn items(self, variant: Option<&'static str>) -> Done<Items> {
        let outer = if variant.is_some() { self.inside()? } else { self };
        Ok(Items { inside: outer.inside()?, items: Vec::new(), variant })
    }

    fn members(self, variant: Option<&'static str>) -> Done<Members> {
        let outer = if variant.is_some() { self.inside()? } else { self };
        Ok(Members { inside: outer.inside()?, members: Vec::new(), name: None, variant })
    }

    /// `shortest` is not called for what is not finite.
    fn float(self, float: f64, shortest: impl FnOnce() -> String) -> Done<Value> {
        let number = if float.is_finite() { Number::from_float(&shortest()) } else { None };
        let refused = || failed("JSON has no NaN and no infinities", "send null or a string");
        number.map(Value::Number).ok_or_else(refused)
    }
}

/// `{"variant": value}`, or the value alone.
fn wrap(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(name) => Value::Object(Object { members: vec![(name.into(), value)] }),
        None => value,
    }
}

/// Both directions of `serialize_x` for the integer types.
macro_rules! integers {
    ($($method:ident: $from:ty as $to:ty),*) => {
        $(fn $method(self, integer: $from) -> Done<Value> {
            Ok(Value::Number(Number::from(<$to>::from(integer))))
        })*
    };
}

impl Serializer for Builder {
    type Ok = Value;
    type Error = Failed;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Members;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Members;

    integers!(
        serialize_i8: i8 as i64, serialize_i16: i16 as i64, serialize_i32: i32 as i64,
        serialize_i64: i64 as i64, serialize_u8: u8 as i64, serialize_u16: u16 as i64,
        serialize_u32: u32 as i64, serialize_u64: u64 as u64, serialize_i128: i128 as i128,
        serialize_u128: u128 as u128
    );

    fn serialize_bool(self, bool: bool) -> Done<Value> {
        Ok(Value::Bool(bool))
    }

    fn serialize_f32(self, float: f32) -> Done<Value> {
        self.float(f64::from(float), || float::shortest_f32(float))
    }

    fn serialize_f64(self, float: f64) -> Done<Value> {
        self.float(float, || float::shortest_f64(float))
    }

    fn serialize_char(self, char: char) -> Done<Value> {
        self.serialize_str(char.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Done<Value> {
        Ok(Value::String(text.into()))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Done<Value> {
        self.inside()?;
        let number = |byte: &u8| Value::Number(Number::from(i64::from(*byte)));
        Ok(Value::Array(bytes.iter().map(number).collect()))
    }

    fn serialize_none(self) -> Done<Value> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done<Value> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done<Value> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done<Value> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done<Value> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done<Value> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Done<Value> {
        Ok(wrap(Some(variant), value.serialize(self.inside()?)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Done<Items> {
        self.items(None)
    }

    fn serialize_tuple(self, _: usize) -> Done<Items> {
        self.items(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Done<Items> {
        self.items(None)
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, variant: &'static str, _: usize) -> Done<Items> {
        self.items(Some(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Done<Members> {
        self.members(None)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Done<Fields> {
        match name {
            NUMBER_TOKEN | RAW_TOKEN => Ok(Fields::Hidden { inside: self, token: name, value: None }),
            _ => self.members(None).map(Fields::Plain),
        }
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, variant: &'static str, _: usize) -> Done<Members> {
        self.members(Some(variant))
    }
}

/// An array on its way.
struct Items {
    inside: Builder,
    items: Vec<Value>,
    variant: Option<&'static str>,
}

impl Items {
    fn push<T: Serialize + ?Sized>(&mut self, item: &T) -> Done<()> {
        self.items.push(item.serialize(self.inside)?);
        Ok(())
    }

    fn finish(self) -> Done<Value> {
        Ok(wrap(self.variant, Value::Array(self.items)))
    }
}

/// The four traits that only differ in the name of one method.
macro_rules! items {
    ($($name:ident: $method:ident),*) => {
        $(impl ser::$name for Items {
            type Ok = Value;
            type Error = Failed;

            fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> Done<()> {
                self.push(item)
            }

            fn end(self) -> Done<Value> {
                self.finish()
            }
        })*
    };
}

items!(
    SerializeSeq: serialize_element, SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field, SerializeTupleVariant: serialize_field
);

/// An object on its way.
struct Members {
    inside: Builder,
    members: Vec<(Box<str>, Value)>,
    name: Option<Box<str>>,
    variant: Option<&'static str>,
}

impl Members {
    fn push<T: Serialize + ?Sized>(&mut self, name: Box<str>, value: &T) -> Done<()> {
        self.members.push((name, value.serialize(self.inside)?));
        Ok(())
    }

    fn finish(self) -> Done<Value> {
        match Object::sorted(self.members) {
            Ok(object) => Ok(wrap(self.variant, Value::Object(object))),
            Err(name) => {
                let what = format!("the name {} occurs twice in one object", shown(&name));
                Err(failed(what, "give every name once, also after numbers became text"))
            }
        }
    }
}

impl ser::SerializeMap for Members {
    type Ok = Value;
    type Error = Failed;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done<()> {
        self.name = Some(key.serialize(Name)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done<()> {
        match self.name.take() {
            Some(name) => self.push(name, value),
            None => Err(ser::Error::custom("a map value came without its key")),
        }
    }

    fn end(self) -> Done<Value> {
        self.finish()
    }
}

impl ser::SerializeStructVariant for Members {
    type Ok = Value;
    type Error = Failed;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done<()> {
        self.push(name.into(), value)
    }

    fn end(self) -> Done<Value> {
        self.finish()
    }
}

/// A struct on its way: a plain one, or one of those in which serde_json hides text.
enum Fields {
    Plain(Members),
    Hidden { inside: Builder, token: &'static str, value: Option<Value> },
}

impl ser::SerializeStruct for Fields {
    type Ok = Value;
    type Error = Failed;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, field: &T) -> Done<()> {
        match self {
            Fields::Plain(members) => members.push(name.into(), field),
            Fields::Hidden { inside, token, value } => {
                // Only a string is ever hidden, and a map key is read as one.
                let text = field.serialize(Name)?;
                *value = Some(hidden(*inside, token, &text)?);
                Ok(())
            }
        }
    }

    fn end(self) -> Done<Value> {
        match self {
            Fields::Plain(members) => members.finish(),
            Fields::Hidden { value, .. } => {
                value.ok_or_else(|| ser::Error::custom("serde_json hid no text where it should"))
            }
        }
    }
}

fn hidden(inside: Builder, token: &str, text: &str) -> Done<Value> {
    if token == NUMBER_TOKEN {
        return text.parse().map(Value::Number).map_err(Failed);
    }
    super::parse::document_inside(text, inside.depth).map_err(Failed)
}
