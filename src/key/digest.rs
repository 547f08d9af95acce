//! How parts become a digest: SHA-256 over
//!
//! ```text
//! frame(domain) version frame(kind) frame(part 1) .. frame(part n) u64(n)
//! ```
//!
//! where `frame(x)` is the length of `x` in bytes as a little-endian u64 and then `x`, `version`
//! is one byte, and `u64(n)` is little-endian. The last eight bytes are the count and every part
//! says where it ends, so different lists of parts are different bytes.

use sha2::{Digest as _, Sha256};

/// The version byte of everything that is derived here.
const VERSION: u8 = 1;

pub(super) struct Parts {
    /// Hashed at once: a dozen short updates cost more than the copy.
    bytes: Vec<u8>,
    count: u64,
}

impl Parts {
    pub(super) fn new(domain: &str, kind: &str) -> Self {
        let mut parts = Parts { bytes: Vec::with_capacity(512), count: 0 };
        parts.frame(domain.as_bytes());
        parts.bytes.push(VERSION);
        parts.frame(kind.as_bytes());
        parts
    }

    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.frame(bytes);
        self.count += 1;
    }

    pub(super) fn finish(mut self) -> [u8; 32] {
        self.bytes.extend_from_slice(&self.count.to_le_bytes());
        Sha256::digest(&self.bytes).into()
    }

    fn frame(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }
}

/// What every public digest can do: bytes, hex, text, serde (hex for people, 32 bytes otherwise).
macro_rules! digest_type {
    ($name:ident, $what:literal) => {
        impl $name {
            #[doc = concat!("The 64 hex digits of the ", $what, ".")]
            pub fn to_hex(&self) -> String {
                crate::encoding::hex(self.digest())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::Error;

            /// Reads 64 hex digits.
            fn from_str(text: &str) -> crate::Result<Self> {
                crate::encoding::from_hex(text).map($name::from_digest).ok_or_else(|| {
                    crate::Error::bad_input(format!(concat!("{} is not a ", $what), crate::canonical::shown(text)))
                        .next("give its 64 hex digits")
                })
            }
        }

        impl std::fmt::Display for $name {
            /// 64 hex digits.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.to_hex())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.serialize_str(&self.to_hex())
                } else {
                    self.digest().serialize(serializer)
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    <[u8; 32]>::deserialize(deserializer).map($name::from_digest)
                }
            }
        }
    };
}

pub(super) use digest_type;
