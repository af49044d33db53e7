//! The scheduler's locks, with the interface of the shipped ones, and a way to leave a lock out.
//!
//! Invariant: a lock that is left out guards no value; [`unless`] is only for locks without content.

use crate::planted::{self, Bug};
use shuttle::sync;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
pub(crate) use shuttle::thread::{Builder, JoinHandle};

thread_local! {
    /// Whether locks are only pretended to be taken. All threads of a schedule are coroutines of one thread.
    static PRETENDING: Cell<bool> = const { Cell::new(false) };
}

/// Takes a lock properly; where `bug` is planted, only pretends to.
pub(crate) fn unless<G>(bug: Bug, take: impl FnOnce() -> G) -> G {
    PRETENDING.set(planted::is(bug));
    let taken = take();
    PRETENDING.set(false);
    taken
}

/// The number of the current thread; some threads share a number.
pub(crate) fn own_number() -> usize {
    usize::from(shuttle::current::me()) % 2
}

/// Ignores the poison of a lock: after a panic in another thread, the schedule has failed already.
fn whole<G>(taken: LockResult<G>) -> G {
    taken.unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, guard: Some(whole(self.0.lock())) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard { lock: self, guard: Some(self.0.try_lock().ok()?) })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        whole(self.0.get_mut())
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.0.try_lock().is_err()
    }
}

pub(crate) struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// Always present, except while a wait has it.
    guard: Option<sync::MutexGuard<'a, T>>,
}

impl<T> MutexGuard<'_, T> {
    /// Runs `act` while the lock is free.
    pub(crate) fn unlocked<R>(guard: &mut Self, act: impl FnOnce() -> R) -> R {
        guard.guard = None;
        let done = act();
        guard.guard = Some(whole(guard.lock.0.lock()));
        done
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard in use has its lock"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard in use has its lock"),
        }
    }
}

#[derive(Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(taken) = guard.guard.take() {
            guard.guard = Some(whole(self.0.wait(taken)));
        }
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Default)]
pub(crate) struct RwLock<T>(sync::RwLock<T>);

pub(crate) struct RwLockReadGuard<'a, T>(Option<sync::RwLockReadGuard<'a, T>>);

pub(crate) struct RwLockWriteGuard<'a, T>(Option<sync::RwLockWriteGuard<'a, T>>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard((!PRETENDING.get()).then(|| whole(self.0.read())))
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard((!PRETENDING.get()).then(|| whole(self.0.write())))
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        Some(RwLockWriteGuard(Some(self.0.try_write().ok()?)))
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("only locks of nothing are left out"),
        }
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("only locks of nothing are left out"),
        }
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("only locks of nothing are left out"),
        }
    }
}
