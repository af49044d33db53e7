//! Which faults strike in which life, and which errors they excuse.

use super::Run;
use crate::subject::{Failure, Subject};
use atoll_disk::{Counters, FaultPlan};
use atoll_errors::ErrorKind;

/// The fault of one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No fault but the end of the life itself.
    None,
    /// The power fails at some change.
    PowerCut,
    /// The disk is full for a while.
    Full,
    /// The medium refuses changes for a while.
    ReadOnly,
    /// One sync, write or read fails.
    Error,
    /// One write lands in the wrong place.
    Misdirect,
}

impl<S: Subject> Run<S> {
    /// Plans the faults of a new life.
    pub(super) fn begin_faults(&mut self) {
        self.fault = match self.rng.u8(..12) {
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
            Fault::None | Fault::Misdirect | Fault::Full | Fault::ReadOnly => {}
        }
        self.start(plan);
    }

    /// Plans the last life of a seed, in which a write is misdirected.
    pub(super) fn begin_misdirection(&mut self) {
        self.fault = Fault::Misdirect;
        self.oracle.pin();
        let plan = FaultPlan { misdirect_write: Some(self.some_time(200)), ..FaultPlan::default() };
        self.start(plan);
    }

    fn start(&mut self, plan: FaultPlan) {
        let fault = self.fault;
        self.note(|| format!("fault of this life: {fault:?}"));
        self.disk.set_plan(plan);
        self.before_life = self.disk.counters();
        self.begin_step();
    }

    /// Starts or ends a lasting fault.
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

    /// Plans a power cut or a failed read during recovery, once there is something to recover.
    pub(super) fn plan_recovery_faults(&mut self, has_faults: bool) {
        let mut plan = FaultPlan::default();
        if has_faults && self.life > 0 {
            match self.rng.u8(..8) {
                0 | 1 => plan.power_cut_after = Some(self.some_time(8)),
                2 => plan.fail_read = Some(self.some_time(20)),
                _ => {}
            }
        }
        self.disk.set_plan(plan);
        self.before_life = self.disk.counters();
        self.begin_step();
    }

    /// Whether the power failed in this life.
    pub(super) fn is_off(&self) -> bool {
        self.disk.counters().power_cuts > self.before_life.power_cuts
    }

    /// Begins another step: earlier faults excuse no failed read of it, and no refusal.
    pub(super) fn begin_step(&mut self) {
        self.before_step = self.disk.counters();
    }

    /// Whether a fault excuses the failure of a change, of a check or of a whole recovery: a fault in this
    /// very step, or an earlier one in this life after which the store has declared itself unusable.
    pub(super) fn is_excused(&self, failure: &Failure) -> bool {
        let is_over = failure.is_final && has_struck(&self.disk.counters(), &self.before_life);
        // Reading a page that was overwritten by a misdirected write can leave a change half done.
        let is_half = failure.is_unknown && self.has_strayed();
        self.is_read_excused(failure) || (is_honest(failure) && (is_over || is_half))
    }

    /// Whether a fault excuses the failure of a read: it struck in this very step, the power is off, or a
    /// write of this life was misdirected. Any later read succeeds again, also of the same place; and only
    /// a misdirected write makes bytes wrong.
    pub(super) fn is_read_excused(&self, failure: &Failure) -> bool {
        if matches!(failure.kind, ErrorKind::Corrupt | ErrorKind::NewerFormat) {
            return self.has_strayed();
        }
        is_honest(failure) && (self.is_off() || has_struck(&self.disk.counters(), &self.before_step))
    }

    fn has_strayed(&self) -> bool {
        self.disk.counters().misdirected_writes > self.before_life.misdirected_writes
    }

    /// A number below `limit`: usually small, sometimes large.
    fn some_time(&mut self, limit: u64) -> u64 {
        let limit = self.rng.u64(1..=limit);
        self.rng.u64(..limit)
    }
}

/// Whether any fault struck between two counts.
const fn has_struck(now: &Counters, before: &Counters) -> bool {
    now.power_cuts > before.power_cuts
        || now.read_errors > before.read_errors
        || now.write_errors > before.write_errors
        || now.sync_errors > before.sync_errors
        || now.out_of_space > before.out_of_space
        || now.read_only_refusals > before.read_only_refusals
        || now.misdirected_writes > before.misdirected_writes
}

/// Whether a disk that fails, but does not lie, can cause such a failure of the store.
const fn is_honest(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::OutOfSpace | ErrorKind::ReadOnly
    )
}
