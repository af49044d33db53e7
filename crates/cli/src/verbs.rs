//! The verbs, one file each. A new verb adds a file here and a line in `main`.

pub mod completions;
pub mod config;
pub mod doctor;
pub mod kv;
pub mod ls;
pub mod ring;
pub mod serve;
pub mod store;
pub mod table;
