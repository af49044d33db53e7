//! The measured window: from the first call of a phase to its last, and on until the store is closed.

use super::{PhaseResult, Spec};
use crate::measure::{
    Control, ControlThread, LatencyMeter, MachineShare, MachineTime, calibrate, cpu_seconds, io_bytes,
    peak_resident_bytes, processors,
};
use crate::peers::{Engine, EngineError};
use crate::workloads::Verifier;
use std::time::Instant;

/// An open window.
pub struct Window {
    started: Instant,
    cpu_seconds: f64,
    machine: MachineTime,
    control: Option<ControlThread>,
    control_cpu_seconds: f64,
    result: PhaseResult,
}

impl Window {
    /// Opens the window.
    pub fn start() -> Self {
        // The clock calibrates itself once, and no phase should pay for that.
        calibrate();
        Self {
            control: None,
            control_cpu_seconds: 0.0,
            result: PhaseResult::default(),
            machine: MachineTime::now(),
            cpu_seconds: cpu_seconds(),
            started: Instant::now(),
        }
    }

    /// Opens the window with a control thread beside it.
    pub fn start_with_control() -> Self {
        calibrate();
        let control = ControlThread::start();
        Self { control: Some(control), ..Self::start() }
    }

    /// The last call has returned.
    pub fn end_calls(&mut self, operations: u64, meter: Option<&LatencyMeter>) {
        self.result.wall_seconds = self.started.elapsed().as_secs_f64();
        let control = self.control.take().map(ControlThread::finish).unwrap_or_default();
        self.control_cpu_seconds = control.cpu_seconds;
        self.result.cpu_seconds = self.used_cpu_seconds();
        self.result.settled_cpu_seconds = self.result.cpu_seconds;
        self.result.operations = operations;
        let own = self.result.cpu_seconds;
        heed(&mut self.result, self.machine.until_now(), own);
        if let Some(meter) = meter {
            self.set_latency(meter, &control);
        }
    }

    /// Makes the store durable, closes it, and adds the cost.
    pub fn close(&mut self, mut engine: Box<dyn Engine>) -> Result<(), EngineError> {
        engine.settle()?;
        engine.close()?;
        let own = self.used_cpu_seconds();
        self.result.settled_cpu_seconds = own;
        // Figures are made of this time too, so what ran beside it counts.
        heed(&mut self.result, self.machine.until_now(), own);
        Ok(())
    }

    fn used_cpu_seconds(&self) -> f64 {
        cpu_seconds() - self.cpu_seconds - self.control_cpu_seconds
    }

    /// The result, with the bytes and the memory of the whole process.
    pub fn finish(mut self, spec: &Spec, open_ms: f64, verifier: Verifier) -> PhaseResult {
        self.result.open_ms = open_ms;
        self.result.io = io_bytes();
        self.result.peak_resident_bytes = peak_resident_bytes();
        self.result.user_bytes = self.result.operations * spec.record_bytes();
        self.result.checked = verifier.checked;
        self.result.wrong = verifier.wrong;
        self.result.first_wrong = verifier.first_wrong;
        self.result
    }

    /// Sets the latencies of single calls, in the window or in another pass.
    pub fn set_latency(&mut self, meter: &LatencyMeter, control: &Control) {
        self.result.latency = Some(meter.finish_beside(control));
        self.result.control_worst_us = control.worst_overshoot_us;
    }
}

/// Records what others, and the host of a virtual machine, took of the machine since the window was opened,
/// if it is more than what was recorded before.
fn heed(result: &mut PhaseResult, machine: MachineShare, own_cpu_seconds: f64) {
    let own = own_cpu_seconds / machine.seconds / processors() as f64;
    result.others_busy_share = result.others_busy_share.max(machine.busy - own);
    result.stolen_share = result.stolen_share.max(machine.stolen);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_ran_beside_the_calls_or_beside_the_closing_is_kept() {
        let share = |busy, stolen| MachineShare { busy, stolen, seconds: 2.0 };
        // The processors of one second in two.
        let own = processors() as f64;
        for [calls, all] in [[share(0.9, 0.0), share(0.5, 0.1)], [share(0.5, 0.1), share(0.9, 0.0)]] {
            let mut result = PhaseResult::default();
            heed(&mut result, calls, own);
            heed(&mut result, all, own);
            assert!((result.others_busy_share - 0.4).abs() < 1e-9, "{}", result.others_busy_share);
            assert!((result.stolen_share - 0.1).abs() < 1e-9, "{}", result.stolen_share);
        }
        let mut alone = PhaseResult::default();
        heed(&mut alone, share(0.4, 0.0), own);
        assert!(alone.others_busy_share.abs() < 1e-9, "both clocks are a tick apart: no negative share");
    }
}
