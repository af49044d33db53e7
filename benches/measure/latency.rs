//! Latencies of single calls, and the worst stall without preemption.
//!
//! A thread that waits for a processor is not stalled by the engine. The kernel counts that wait for each
//! thread (`schedstat`). The meter reads it at every slow call and periodically besides, so that only waits
//! of recent calls can be subtracted from a slow one. The times of slow calls are recorded, so that a
//! control thread's delay in the same time can be subtracted instead: whichever of the two is larger, since
//! both observe the same missing processor.

use super::clock::{Ticks, ticks_now, ticks_per_ns};
use super::stalls::{Control, Span};
use std::fs::File;
use std::os::unix::fs::FileExt;

const SUB_BUCKET_BITS: u32 = 6;
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;
const SLOW_NS: f64 = 100_000.0;
/// Calls between two readings of the kernel's count.
const CALLS_BETWEEN_LOOKS: u64 = 1024;
/// How many slow calls are recorded with their times, at least; from the others only the wait is
/// subtracted.
const SLOW_KEPT: usize = 4096;

/// Latencies of calls, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Latency {
    /// How many calls.
    pub calls: u64,
    /// Half of the calls took less.
    pub p50_us: f64,
    /// 99 of 100 took less.
    pub p99_us: f64,
    /// 999 of 1,000 took less.
    #[serde(default)]
    pub p999_us: f64,
    /// 9,999 of 10,000 took less.
    pub p9999_us: f64,
    /// The slowest call, as the caller saw it.
    pub worst_us: f64,
    /// The slowest call after subtracting each one's wait for a processor.
    pub worst_running_us: f64,
    /// The slowest call after subtracting from each either that wait or the control thread's delay during
    /// the call.
    #[serde(default)]
    pub worst_own_us: f64,
}

/// A slow call; durations are in nanoseconds where nothing else is said.
#[derive(Clone, Copy, Debug)]
struct SlowCall {
    span: Span,
    waited_ns: f64,
    running_ns: f64,
}

/// Times calls that follow each other without a gap.
pub struct LatencyMeter {
    buckets: Vec<u64>,
    calls: u64,
    worst: Ticks,
    worst_running_ns: f64,
    slow_calls: Vec<SlowCall>,
    worst_forgotten_ns: f64,
    slow: Ticks,
    last: Ticks,
    schedstat: Option<File>,
    waited_ns: u64,
}

impl LatencyMeter {
    /// Starts the meter; the first call begins now.
    pub fn start() -> Self {
        let mut meter = Self {
            buckets: vec![0; SUB_BUCKETS * (64 - SUB_BUCKET_BITS as usize + 1)],
            calls: 0,
            worst: 0,
            worst_running_ns: 0.0,
            slow_calls: Vec::new(),
            worst_forgotten_ns: 0.0,
            slow: (SLOW_NS * ticks_per_ns()) as Ticks,
            last: 0,
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            waited_ns: 0,
        };
        meter.waited_ns = meter.waited_for_processor_ns();
        meter.last = ticks_now();
        meter
    }

    /// Excludes the time since the last call; the next call begins now.
    pub fn resume(&mut self) {
        self.waited_ns = self.waited_for_processor_ns();
        self.last = ticks_now();
    }

    /// A call has ended now, and the next one begins.
    #[inline]
    pub fn lap(&mut self) {
        let now = ticks_now();
        let took = now.wrapping_sub(self.last);
        self.calls += 1;
        self.buckets[bucket_of(took)] += 1;
        if took > self.slow || self.calls.is_multiple_of(CALLS_BETWEEN_LOOKS) {
            self.look(took);
            self.last = ticks_now();
        } else {
            self.last = now;
        }
        self.worst = self.worst.max(took);
    }

    #[cold]
    fn look(&mut self, took: Ticks) {
        let waited_ns = self.waited_for_processor_ns();
        let waited_since = waited_ns.saturating_sub(self.waited_ns) as f64;
        self.waited_ns = waited_ns;
        let running_ns = took as f64 / ticks_per_ns() - waited_since;
        self.worst_running_ns = self.worst_running_ns.max(running_ns);
        if took > self.slow {
            let span = Span { from: self.last, until: self.last + took };
            self.keep(SlowCall { span, waited_ns: waited_since, running_ns });
        }
    }

    fn keep(&mut self, call: SlowCall) {
        self.slow_calls.push(call);
        if self.slow_calls.len() >= 2 * SLOW_KEPT {
            self.slow_calls.sort_by(|left, right| right.running_ns.total_cmp(&left.running_ns));
            let forgotten = self.slow_calls[SLOW_KEPT].running_ns;
            self.worst_forgotten_ns = self.worst_forgotten_ns.max(forgotten);
            self.slow_calls.truncate(SLOW_KEPT);
        }
    }

    /// The worst slow call without its wait or the control thread's delay. Calls that were not recorded
    /// count with their longest time.
    fn worst_own_ns(&self, control: &Control) -> f64 {
        let own = |call: &SlowCall| {
            let felt_ns = control.felt_in(call.span) as f64 / ticks_per_ns();
            call.running_ns.min(call.running_ns + call.waited_ns - felt_ns)
        };
        self.slow_calls.iter().map(own).fold(self.worst_forgotten_ns, f64::max)
    }

    /// Nanoseconds for which this thread was ready but had no processor; 0 where the kernel does not report
    /// it.
    fn waited_for_processor_ns(&self) -> u64 {
        let mut text = [0; 96];
        let Some(read) = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()) else {
            return 0;
        };
        let text = String::from_utf8_lossy(&text[..read]);
        text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
    }

    /// Merges the meter of another thread.
    pub fn join(&mut self, other: Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, other)| *own += other);
        self.calls += other.calls;
        self.worst = self.worst.max(other.worst);
        self.worst_running_ns = self.worst_running_ns.max(other.worst_running_ns);
        self.worst_forgotten_ns = self.worst_forgotten_ns.max(other.worst_forgotten_ns);
        other.slow_calls.into_iter().for_each(|call| self.keep(call));
    }

    /// The summary without a control thread.
    pub fn finish(&self) -> Latency {
        self.finish_beside(&Control::default())
    }

    /// The summary, with the control thread's delays subtracted from calls at the same time.
    pub fn finish_beside(&self, control: &Control) -> Latency {
        let to_us = 1.0 / ticks_per_ns() / 1000.0;
        let worst_us = self.worst as f64 * to_us;
        let at = |share: f64| (self.ticks_at(share) as f64 * to_us).min(worst_us);
        Latency {
            calls: self.calls,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            worst_us,
            // Without a slow call, every call was below the bound for slow ones.
            worst_running_us: (self.worst_running_ns / 1000.0).max(worst_us.min(SLOW_NS / 1000.0)),
            worst_own_us: (self.worst_own_ns(control) / 1000.0).max(worst_us.min(SLOW_NS / 1000.0)),
        }
    }

    fn ticks_at(&self, share: f64) -> Ticks {
        let wanted = (self.calls as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(bucket);
            }
        }
        self.worst
    }
}

/// The bucket of a value. There are 64 for every power of two, so a reading is off by at most 1.6 %.
#[inline]
fn bucket_of(ticks: Ticks) -> usize {
    if ticks < SUB_BUCKETS as u64 {
        return ticks as usize;
    }
    let shift = 63 - ticks.leading_zeros() - SUB_BUCKET_BITS;
    (shift as usize + 1) * SUB_BUCKETS + ((ticks >> shift) as usize - SUB_BUCKETS)
}

fn upper_end(bucket: usize) -> Ticks {
    if bucket < SUB_BUCKETS {
        return bucket as Ticks;
    }
    let shift = (bucket / SUB_BUCKETS - 1) as u32;
    let start = (SUB_BUCKETS + bucket % SUB_BUCKETS) as u64;
    (start << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values_within_two_percent() {
        for ticks in (0..10_000).chain([1 << 20, (1 << 33) + 12_345, u64::MAX / 3]) {
            let end = upper_end(bucket_of(ticks));
            assert!(end >= ticks && (end - ticks) as f64 <= ticks as f64 / 60.0, "{ticks} under {end}");
        }
    }

    #[test]
    fn the_slowest_call_is_the_worst_stall() {
        let mut meter = LatencyMeter::start();
        for call in 0..5000 {
            let until = ticks_now() + if call == 1234 { (3e6 * ticks_per_ns()) as u64 } else { 0 };
            while ticks_now() < until {}
            meter.lap();
        }
        let latency = meter.finish();
        assert_eq!(latency.calls, 5000);
        assert!(latency.worst_us >= 3000.0, "{latency:?}");
        assert!(latency.p50_us < 100.0, "{latency:?}");
    }

    fn milliseconds(count: f64) -> Ticks {
        (count * 1e6 * ticks_per_ns()) as Ticks
    }

    /// The own time of a call of 30 ms, one second after the start, given its wait and a control thread's
    /// delay.
    fn own_of_a_stall(waited_ms: f64, felt: Span) -> f64 {
        let mut meter = LatencyMeter::start();
        let from = milliseconds(1000.0);
        meter.worst = milliseconds(30.0);
        let span = Span { from, until: from + milliseconds(30.0) };
        meter.keep(SlowCall { span, waited_ns: waited_ms * 1e6, running_ns: (30.0 - waited_ms) * 1e6 });
        let control = Control { felt: vec![felt], ..Control::default() };
        meter.finish_beside(&control).worst_own_us / 1000.0
    }

    #[test]
    fn what_the_control_thread_felt_at_another_time_is_not_taken_off() {
        let at = |from, ms| Span { from: milliseconds(from), until: milliseconds(from + ms) };
        let is = |found: f64, expected: f64| (found - expected).abs() < 0.01;
        assert!(is(own_of_a_stall(0.0, at(5000.0, 30.0)), 30.0));
        assert!(is(own_of_a_stall(0.0, at(1010.0, 10.0)), 20.0));
        assert!(is(own_of_a_stall(0.0, at(1025.0, 30.0)), 25.0));
        // The wait and the delay are due to the same missing processor.
        assert!(is(own_of_a_stall(10.0, at(1010.0, 10.0)), 20.0));
        assert!(is(own_of_a_stall(10.0, at(5000.0, 30.0)), 20.0));
        assert!(is(own_of_a_stall(4.0, at(1010.0, 10.0)), 20.0));
    }

    #[test]
    fn slow_calls_that_are_not_kept_are_not_taken_for_fast_ones() {
        let mut meter = LatencyMeter::start();
        let all = Control { felt: vec![Span { from: 0, until: Ticks::MAX }], ..Control::default() };
        let calls = 2 * SLOW_KEPT as u64;
        for call in 1..=calls {
            let running_ns = call as f64 * 1e6;
            let span = Span { from: 0, until: milliseconds(call as f64) };
            meter.worst = span.until;
            meter.keep(SlowCall { span, waited_ns: 0.0, running_ns });
        }
        assert!(meter.slow_calls.len() <= SLOW_KEPT);
        let own_ms = meter.finish_beside(&all).worst_own_us / 1000.0;
        assert!((own_ms - SLOW_KEPT as f64).abs() < 1.0, "{own_ms} ms");
    }
}
