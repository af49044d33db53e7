//! Which faults strike in which life, and which errors they excuse.

use super::Run;
use crate::subject::{Failure, Subject};
use atoll_disk::FaultPlan;
use atoll_errors::ErrorKind;

/// The fault of one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// None but the end of the life itself.
    None,
    /// The power goes at some change.
    PowerCut,
    /// The disk is full for a while.
    Full,
    /// The medium refuses changes for a while.
    ReadOnly,
    /// One sync, write or read fails.
    Error,
    /// One write lands elsewhere.
    Misdirect,
}

impl<S: Subject> Run<S> {
    /// Plans the faults of a new life. The life in which a write goes astray is the last of its seed.
    pub(super) fn begin_faults(&mut self) {
        let is_late = self.operations + 500 > super::OPERATIONS_MIN;
        self.fault = match self.rng.u8(..12) {
            _ if is_late && self.seed.is_multiple_of(2) => Fault::Misdirect,
            0..=4 => Fault::PowerCut,
            5 => Fault::Full,
            6 => Fault::ReadOnly,
            7 | 8 => Fault::Error,
            _ => Fault::None,
        };
        let mut plan = FaultPlan::default();
        match self.fault {
            Fault::PowerCut => plan.power_cut_after = Some(self.some_time(800)),
            Fault::Error => match self.rng.u8(..3) {
                0 => plan.fail_sync = Some(self.some_time(60)),
                1 => plan.fail_write = Some(self.some_time(400)),
                _ => plan.fail_read = Some(self.some_time(100)),
            },
            Fault::Misdirect => {
                plan.misdirect_write = Some(self.some_time(200));
                self.oracle.pin();
            }
            Fault::None | Fault::Full | Fault::ReadOnly => {}
        }
        self.note_plan();
        self.disk.set_plan(plan);
        self.before_life = self.disk.counters();
    }

    /// Lets a lasting fault come and go, and notices a write that went astray.
    pub(super) fn change_faults(&mut self) {
        let plan = match self.fault {
            Fault::Full => FaultPlan { space_left: Some(self.rng.u64(..200_000)), ..FaultPlan::default() },
            Fault::ReadOnly => FaultPlan { read_only: true, ..FaultPlan::default() },
            _ => return,
        };
        match self.rng.u8(..60) {
            0 => self.disk.set_plan(plan),
            1 | 2 => self.disk.set_plan(FaultPlan::default()),
            _ => {}
        }
    }

    /// The first attempts at recovery may meet a power cut or a failed read; the last ones may not.
    pub(super) fn plan_recovery_faults(&mut self, attempt: u32) {
        let mut plan = FaultPlan::default();
        if attempt < super::RECOVERY_ATTEMPTS_MAX - 2 && self.life > 0 {
            match self.rng.u8(..8) {
                0 | 1 => plan.power_cut_after = Some(self.some_time(8)),
                2 => plan.fail_read = Some(self.some_time(20)),
                _ => {}
            }
        }
        self.disk.set_plan(plan);
        self.before_life = self.disk.counters();
    }

    /// Whether a fault of this life explains the failure.
    pub(super) fn is_excused(&self, failure: &Failure) -> bool {
        let (now, before) = (self.disk.counters(), self.before_life);
        let has_failed = now.power_cuts > before.power_cuts
            || now.read_errors > before.read_errors
            || now.write_errors > before.write_errors
            || now.sync_errors > before.sync_errors
            || now.out_of_space > before.out_of_space
            || now.read_only_refusals > before.read_only_refusals
            || now.misdirected_writes > before.misdirected_writes;
        has_failed && failure.kind != ErrorKind::Internal
    }

    /// Soon mostly, late sometimes.
    fn some_time(&mut self, limit: u64) -> u64 {
        let limit = self.rng.u64(1..=limit);
        self.rng.u64(..limit)
    }

    fn note_plan(&mut self) {
        let fault = self.fault;
        self.note(|| format!("fault of this life: {fault:?}"));
    }
}
