//! The engine. Arrows point down: `writer` and `recover` use `state`, `index`, `store`; `store`
//! is the only file that names redb, `codec` the only one that lays out bytes, `clock` the only
//! one that reads the time, `state` reads nothing at all.

pub(crate) mod clock;
pub(crate) mod files;
