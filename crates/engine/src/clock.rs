//! The only place where the engine reads a clock: to keep unreferenced space for a while.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Returns the time since some fixed moment; never goes back.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock that calls `tell` for the time.
    pub fn new(tell: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Clock {
    /// The machine's monotonic clock.
    // The one use of the system's clock; all other code is given a clock.
    #[allow(clippy::disallowed_methods)]
    fn default() -> Self {
        let start = std::time::Instant::now();
        Self::new(move || start.elapsed())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Clock {}
