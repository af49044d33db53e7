//! What the copies of a slot say to each other: log, commit, leases and configurations, without I/O.
//!
//! Inputs and the time in, messages and effects out: no socket, no disk, no clock and no thread.
