//! Progress bars: only on a terminal, and only for what takes more than two seconds.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Actions shorter than this show no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Progress of one long action in bytes or rows.
pub(crate) struct Progress {
    bar: ProgressBar,
    is_wanted: bool,
}

impl Progress {
    /// Progress through `total` bytes, or through an unknown number.
    pub(crate) fn bytes(total: Option<u64>, is_wanted: bool) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = if total.is_some() {
            "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left {msg}"
        } else {
            "{spinner} {bytes}, {bytes_per_sec} {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, is_wanted: is_wanted && std::io::stderr().is_terminal() }
    }

    /// Progress through an unknown number of rows.
    pub(crate) fn count(is_wanted: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} rows, {per_sec} {msg}") {
            bar.set_style(style);
        }
        Self { bar, is_wanted: is_wanted && std::io::stderr().is_terminal() }
    }

    /// Sets the position of the action.
    pub(crate) fn set(&self, position: u64, message: String) {
        if self.is_wanted && self.bar.is_hidden() && self.bar.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(message);
        self.bar.set_position(position);
    }

    /// Sets the number of bytes, once it is known.
    pub(crate) fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
