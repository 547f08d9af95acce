//! Arguments, and the key that a client may have put beside or into them.

use super::call::Malformed;
use crate::canonical::{Object, Value};

const META: &str = "_meta";

/// Arguments without what is not theirs, and the key that was carried in it.
pub(super) type Taken = (std::result::Result<Value, Malformed>, Option<Box<str>>);

/// Arguments as any API sends them: an object, its JSON text, or nothing. `meta` is what stands
/// beside them. Absent, `null` and empty text are no arguments: `{}`.
pub(super) fn arguments(given: Option<&Value>, meta: Option<&Value>) -> Taken {
    let read = match given {
        None | Some(Value::Null) => Ok(Value::Object(Object::default())),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Value::Object(Object::default())),
        Some(Value::String(text)) => match Value::parse(text) {
            Ok(value @ Value::Object(_)) => Ok(value),
            Ok(_) => Err(malformed(text, "they are JSON, but not an object")),
            Err(error) => Err(malformed(text, &error.to_string())),
        },
        Some(value @ Value::Object(_)) => Ok(value.clone()),
        Some(other) => Err(malformed(&other.to_canonical(), "they are not an object")),
    };
    let value = match read {
        Ok(value) => value,
        Err(malformed) => return (Err(malformed), None),
    };
    match carried(meta, value.get(META)) {
        Ok(key) => (Ok(strip(value)), key),
        Err(why) => (Err(malformed(&value.to_canonical(), why)), None),
    }
}

fn malformed(text: &str, why: &str) -> Malformed {
    Malformed { text: text.to_owned(), why: why.to_owned() }
}

/// The one key in these two; none, where there is none.
fn carried(beside: Option<&Value>, inside: Option<&Value>) -> std::result::Result<Option<Box<str>>, &'static str> {
    let mut found: Option<Box<str>> = None;
    let members = [beside, inside].into_iter().flatten().filter_map(Value::as_object).flat_map(Object::iter);
    for (name, value) in members {
        let Some(("idempotencyKey" | "idempotency-key" | "idempotency_key", _)) = prefixed(name) else { continue };
        let key = value.as_str().filter(|key| !key.is_empty()).ok_or("the key in `_meta` is not a text, or empty")?;
        if found.as_deref().is_some_and(|other| other != key) {
            return Err("`_meta` carries two keys that differ");
        }
        found = Some(key.into());
    }
    Ok(found)
}

/// Splits `com.example/name` into `name` and `com.example`.
fn prefixed(name: &str) -> Option<(&str, &str)> {
    let (prefix, name) = name.split_once('/')?;
    let label = |label: &str| {
        let edge = |char: Option<char>| char.is_some_and(|char| char.is_ascii_alphanumeric());
        let inner = label.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
        inner && edge(label.chars().next()) && edge(label.chars().next_back())
    };
    let reverse_dns = prefix.contains('.') && prefix.split('.').all(label);
    reverse_dns.then_some((name, prefix))
}

/// The arguments without the prefixed members of their `_meta`, and without a `_meta` that has
/// nothing else.
fn strip(value: Value) -> Value {
    let Some(meta) = value.get(META).and_then(Value::as_object) else { return value };
    if !meta.iter().any(|(name, _)| prefixed(name).is_some()) {
        return value;
    }
    let owned = |(name, value): (&str, &Value)| (Box::from(name), value.clone());
    let kept: Vec<_> = meta.iter().filter(|(name, _)| prefixed(name).is_none()).map(owned).collect();
    let others = value.as_object().into_iter().flat_map(Object::iter).filter(|(name, _)| *name != META).map(owned);
    // No name occurs twice: they come from two objects, and `_meta` only from one of them.
    let kept = Some(kept).filter(|kept| !kept.is_empty()).and_then(|kept| Object::new(kept).ok());
    let kept = kept.map(|kept| (Box::from(META), Value::Object(kept)));
    match Object::new(others.chain(kept)) {
        Ok(object) => Value::Object(object),
        Err(_) => value,
    }
}
