//! The conformance suite on real nodes of the ring: on one, on three, and on three of which one dies while
//! another joins.
//!
//! This is a crate of its own because the simulation is also built with planted bugs, and that build must
//! not need nodes and sockets.
