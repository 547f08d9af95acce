//! The peers, one file each. All but redb (which onceledger itself is built on) are behind the feature `peers`.

#[cfg(feature = "peers")]
pub mod fjall;
#[cfg(feature = "peers")]
pub mod lmdb;
pub mod raw_redb;
#[cfg(feature = "peers")]
pub mod sqlite;
