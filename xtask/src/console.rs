//! Progress on the terminal: one line per step, with the time it took, updated while it runs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// A step shorter than this shows no sign of life.
const QUIET: Duration = Duration::from_secs(2);
/// How often a long step reports that it is alive where lines cannot be rewritten.
const REMINDER: Duration = Duration::from_secs(30);

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
}

/// One running step.
pub struct Step {
    name: String,
    started: Instant,
    reminded: Instant,
    rewrites: bool,
    frame: usize,
    open: bool,
}

impl Step {
    /// A step that prints nothing unless it takes long.
    pub fn quiet(name: impl Into<String>) -> Self {
        let now = Instant::now();
        let rewrites = std::io::stderr().is_terminal();
        Self { name: name.into(), started: now, reminded: now, rewrites, frame: 0, open: true }
    }

    /// A step that is announced first.
    pub fn start(name: impl Into<String>) -> Self {
        let step = Self::quiet(name);
        if !step.rewrites {
            println!("  ...  {}", step.name);
        }
        step
    }

    /// Shows that the step is alive. Call it often, with the newest line of output.
    pub fn tick(&mut self, detail: &str) {
        let elapsed = self.started.elapsed();
        if elapsed < QUIET {
            return;
        }
        if self.rewrites {
            self.frame = (self.frame + 1) % FRAMES.len();
            let line =
                format!("  {}  {} ({})  {}", FRAMES[self.frame], self.name, seconds(elapsed), detail.trim());
            eprint!("\r\x1b[2K{}", clipped(&line, width()));
            let _ = std::io::stderr().flush();
        } else if self.reminded.elapsed() >= REMINDER {
            self.reminded = Instant::now();
            println!("       {}: {} so far", self.name, seconds(elapsed));
        }
    }

    /// Prints how the step ended and how long it took.
    pub fn end(mut self, verdict: Verdict, detail: &str) -> Duration {
        self.clear();
        let elapsed = self.started.elapsed();
        let word = match verdict {
            Verdict::Passed => "ok  ",
            Verdict::Failed => "FAIL",
        };
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        println!("  {word} {}{detail} ({})", self.name, seconds(elapsed));
        elapsed
    }

    fn clear(&mut self) {
        if self.rewrites && self.open {
            eprint!("\r\x1b[2K");
            let _ = std::io::stderr().flush();
        }
        self.open = false;
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Prints a heading.
pub fn heading(text: &str) {
    println!("\n{text}");
}

/// A duration in words for people.
pub fn seconds(duration: Duration) -> String {
    let total = duration.as_secs();
    match total {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{total} s"),
        _ => format!("{} min {:02} s", total / 60, total % 60),
    }
}

fn width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(80)
}

fn clipped(line: &str, width: usize) -> String {
    line.chars().take(width.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_a_person_says_them() {
        assert_eq!(seconds(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(61)), "61 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 05 s");
    }

    #[test]
    fn a_status_line_never_wraps() {
        assert_eq!(clipped("abcdef", 4), "abc");
        assert_eq!(clipped("äöü", 80), "äöü");
    }
}
