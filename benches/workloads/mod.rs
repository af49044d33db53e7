//! The YCSB workloads, exactly reproducible: which keys, which values, in which order.
//!
//! Nothing here depends on a clock, on a random source or on the machine: two runs of one version issue the
//! same calls with the same bytes to every engine.

pub use keys::{KEY_BYTES, Key, hash_of_counter};
pub use requests::{
    ScanRequest, UpdateRequest, give_versions, point_requests, scan_requests, update_requests, versions_after,
};
pub use values::{Batch, Others, Verifier, fill_value};
pub use zipfian::Zipfian;

mod keys;
mod requests;
mod values;
mod zipfian;
