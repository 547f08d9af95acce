//! The synchronisation types of the engine, in one place: parking_lot and std here, shuttle's where
//! schedules are explored (`--cfg onceledger_shuttle`), so that the code explored is the code that runs.

#[cfg(not(onceledger_shuttle))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(onceledger_shuttle))]
pub(crate) use std::sync::Arc;
#[cfg(not(onceledger_shuttle))]
pub(crate) use std::sync::atomic;
