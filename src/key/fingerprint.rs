//! What is kept beside a key: the fingerprint that a repeat must match, and the digest of the
//! arguments that an approver was shown.

use std::fmt;

use super::digest::{Parts, digest_type};
use crate::canonical::{Value, shown};
use crate::error::{Error, Result};

const ABSENT: &[u8] = &[0];
const PRESENT: &[u8] = &[1];

/// SHA-256 over the identity and guard fields of the arguments. The same key with another
/// fingerprint is a mismatch (P5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// SHA-256 of the complete canonical arguments: what an approver was shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArgsDigest([u8; 32]);

digest_type!(Fingerprint, "fingerprint");
digest_type!(ArgsDigest, "args digest");

impl Fingerprint {
    /// The fingerprint of a claim made without arguments. Against every other it is a mismatch.
    pub const UNGUARDED: Fingerprint = Fingerprint([
        0x9f, 0x3e, 0x84, 0xdc, 0xcd, 0x13, 0x68, 0x51, 0x48, 0xdd, 0x95, 0xbb, 0xe8, 0x5e, 0x0b, 0x3d, 0x36, 0x6a,
        0xdb, 0xe3, 0x6f, 0x85, 0x78, 0x38, 0x49, 0xb4, 0x9b, 0x52, 0x57, 0xbd, 0x73, 0x1e,
    ]);

    /// The fingerprint with these bytes.
    pub const fn from_digest(digest: [u8; 32]) -> Self {
        Fingerprint(digest)
    }

    /// The 32 bytes.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.0
    }

    /// Every argument counts.
    fn of_all(args: ArgsDigest) -> Self {
        let mut parts = Parts::new("onceledger/fingerprint", "all");
        parts.part(&args.0);
        Fingerprint(parts.finish())
    }

    /// Only these fields count; an absent one is not a null one.
    fn of_fields(fields: &[Field<'_>]) -> Self {
        let mut parts = Parts::new("onceledger/fingerprint", "fields");
        let mut text = String::new();
        for field in fields {
            text.clear();
            if let Some(value) = field.value {
                value.write_canonical(&mut text);
            }
            parts.part(field.pointer.as_bytes());
            parts.part(if field.value.is_some() { PRESENT } else { ABSENT });
            parts.part(text.as_bytes());
        }
        Fingerprint(parts.finish())
    }
}

impl ArgsDigest {
    /// The digest of all of `args`.
    pub fn of(args: &Value) -> Self {
        let mut parts = Parts::new("onceledger/arguments", "canonical");
        parts.part(args.to_canonical().as_bytes());
        ArgsDigest(parts.finish())
    }

    /// The digest with these bytes.
    pub const fn from_digest(digest: [u8; 32]) -> Self {
        ArgsDigest(digest)
    }

    /// The 32 bytes.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self:.16})")
    }
}

impl fmt::Debug for ArgsDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArgsDigest({self:.16})")
    }
}

/// What the arguments of one call contribute: identity for the key, a fingerprint, a digest.
///
/// Fields are named by JSON pointers, in any order; naming one twice changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    /// None where the key is made by hand.
    identity: Option<[u8; 32]>,
    fingerprint: Fingerprint,
    args: ArgsDigest,
}

impl Selection {
    /// For [`Key::tool`](crate::Key::tool): `identity` fields make the key; they and the `guard`
    /// fields make the fingerprint; what is in neither is free text. Without identity fields every
    /// argument is identity, and `guard` adds nothing.
    ///
    /// # Errors
    /// `BadInput` for a bad pointer, and for an identity field that `args` lacks. A guard field may
    /// be absent, which is not the same as null.
    pub fn tool(args: &Value, identity: &[impl AsRef<str>], guard: &[impl AsRef<str>]) -> Result<Self> {
        let digest = ArgsDigest::of(args);
        let mut fields = sorted(args, identity)?;
        let guards = sorted(args, guard)?;
        if fields.is_empty() {
            let mut parts = Parts::new("onceledger/identity", "all");
            parts.part(&digest.0);
            let fingerprint = Fingerprint::of_all(digest);
            return Ok(Selection { identity: Some(parts.finish()), fingerprint, args: digest });
        }
        let identity = identity_of(&fields)?;
        fields.extend(guards);
        unite(&mut fields);
        let fingerprint = Fingerprint::of_fields(&fields);
        Ok(Selection { identity: Some(identity), fingerprint, args: digest })
    }

    /// For a key made by hand: the `guard` fields make the fingerprint, and without any every
    /// argument does.
    ///
    /// # Errors
    /// `BadInput` for a bad pointer.
    pub fn by_hand(args: &Value, guard: &[impl AsRef<str>]) -> Result<Self> {
        let digest = ArgsDigest::of(args);
        let fields = sorted(args, guard)?;
        let fingerprint = if fields.is_empty() { Fingerprint::of_all(digest) } else { Fingerprint::of_fields(&fields) };
        Ok(Selection { identity: None, fingerprint, args: digest })
    }

    /// The fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The digest of all arguments.
    pub fn args_digest(&self) -> ArgsDigest {
        self.args
    }

    pub(super) fn identity(&self) -> Result<&[u8; 32]> {
        self.identity.as_ref().ok_or_else(|| {
            Error::bad_input("a selection made by hand has no identity fields")
                .next("use Selection::tool for a tool's key, or Key::action with this one")
        })
    }
}

/// A named place in the arguments and what stands there.
#[derive(Clone, Copy)]
struct Field<'a> {
    pointer: &'a str,
    value: Option<&'a Value>,
}

/// The fields by the bytes of their pointers, each once.
fn sorted<'a>(args: &'a Value, pointers: &'a [impl AsRef<str>]) -> Result<Vec<Field<'a>>> {
    let mut fields = Vec::with_capacity(pointers.len());
    for pointer in pointers {
        let pointer = pointer.as_ref();
        fields.push(Field { pointer, value: args.pointer(pointer)? });
    }
    unite(&mut fields);
    Ok(fields)
}

fn unite(fields: &mut Vec<Field<'_>>) {
    fields.sort_by_key(|field| field.pointer);
    fields.dedup_by_key(|field| field.pointer);
}

fn identity_of(fields: &[Field<'_>]) -> Result<[u8; 32]> {
    let mut parts = Parts::new("onceledger/identity", "fields");
    let mut text = String::new();
    for field in fields {
        let Some(value) = field.value else {
            let what = format!("the arguments lack the identity field {}", shown(field.pointer));
            return Err(
                Error::bad_input(what).next("send it: the key is made from it (null is a value, absent is not)")
            );
        };
        text.clear();
        value.write_canonical(&mut text);
        parts.part(field.pointer.as_bytes());
        parts.part(text.as_bytes());
    }
    Ok(parts.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unguarded_constant_is_the_digest_it_says_it_is() {
        let digest = Parts::new("onceledger/fingerprint", "unguarded").finish();
        assert_eq!(Fingerprint::UNGUARDED.to_hex(), crate::encoding::hex(&digest));
    }
}
