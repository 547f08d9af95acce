//! The synchronisation types of the line and the index, in one place: parking_lot and std here,
//! shuttle's where schedules are explored (`--cfg onceledger_shuttle`), so that the code explored is
//! the code that runs.

pub(crate) use std::sync::Arc;

#[cfg(not(onceledger_shuttle))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(onceledger_shuttle))]
pub(crate) use std::hint::spin_loop as spin;
#[cfg(not(onceledger_shuttle))]
pub(crate) use std::sync::atomic;
#[cfg(not(onceledger_shuttle))]
pub(crate) use std::thread;

#[cfg(onceledger_shuttle)]
pub(crate) use self::explored::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(onceledger_shuttle)]
pub(crate) use shuttle::sync::atomic;
#[cfg(onceledger_shuttle)]
pub(crate) use shuttle::thread;
#[cfg(onceledger_shuttle)]
pub(crate) use shuttle::thread::yield_now as spin;

/// Shuttle's types behind parking_lot's interface: no poison, and a wait that borrows its guard.
#[cfg(onceledger_shuttle)]
mod explored {
    use std::ops::{Deref, DerefMut};
    use std::sync::{PoisonError, TryLockError};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(MutexGuard(Some(guard))),
                Err(TryLockError::Poisoned(poison)) => Some(MutexGuard(Some(poison.into_inner()))),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.0 {
                Some(guard) => guard,
                None => unreachable!("a guard is empty only inside a wait"),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.0 {
                Some(guard) => guard,
                None => unreachable!("a guard is empty only inside a wait"),
            }
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub fn new() -> Self {
            Condvar(shuttle::sync::Condvar::new())
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if let Some(held) = guard.0.take() {
                guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
            }
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        pub fn read(&self) -> shuttle::sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
