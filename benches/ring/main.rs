//! The speed bench of the ring.

mod client;
mod machine;

fn main() {}
