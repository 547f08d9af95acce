//! The engine. Arrows point down: `writer` and `recover` use `state`, `index`, `store`; `store` and
//! its `backend` are the only files that name redb, `codec` the only one that lays out bytes, `clock`
//! the only one that reads the time, `state` reads nothing at all.

pub(crate) mod anchor;
pub(crate) mod backend;
pub(crate) mod blocks;
pub(crate) mod clock;
pub(crate) mod codec;
pub(crate) mod core;
pub(crate) mod event;
pub(crate) mod expiry;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod index;
pub(crate) mod keeper;
pub(crate) mod line;
pub(crate) mod lines;
pub(crate) mod maps;
pub(crate) mod queue;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod request;
pub(crate) mod rulings;
pub(crate) mod scan;
#[cfg(all(test, onceledger_shuttle))]
mod schedules;
pub(crate) mod session;
pub(crate) mod side;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod sync;
pub(crate) mod turn;
pub(crate) mod writer;
