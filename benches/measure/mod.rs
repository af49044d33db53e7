//! The costs of a phase: CPU time, bytes, memory, latencies and stalls; and the load on the machine
//! meanwhile.

pub use clock::calibrate;
pub use confine::{confine, may_confine, remove_group_of};
pub use latency::{Latency, LatencyMeter};
pub use machine::{CALM_SHARE_MAX, Calm, MachineFacts, raise_priority, wait_for_calm};
pub use stalls::{Control, ControlThread};
pub use usage::{
    IoBytes, MachineShare, MachineTime, TICK_SECONDS, allocated_bytes, anonymous_bytes, cpu_seconds,
    io_bytes, peak_resident_bytes, processors, write_calls,
};

mod clock;
mod confine;
mod latency;
mod machine;
mod stalls;
mod usage;
