//! The kit itself: what its disk forgets, what its clock shows, what its provider counts, what its model takes.
#![cfg(feature = "testkit")]
// Helpers outside test functions, where clippy.toml does not allow it.
#![allow(clippy::unwrap_used)]

#[path = "testkit/clock.rs"]
mod clock;
#[path = "testkit/disk.rs"]
mod disk;
#[path = "testkit/images.rs"]
mod images;
#[path = "testkit/model.rs"]
mod model;
#[path = "testkit/provider.rs"]
mod provider;
#[path = "testkit/real.rs"]
mod real;
#[path = "testkit/redb.rs"]
mod redb;
#[path = "testkit/sync.rs"]
mod sync;
