//! The conformance suite on real nodes of the ring: on one, on three, and on three of which one dies while
//! another joins. Beside it, the largest batch that the contract allows.
//!
//! This is a crate of its own because the simulation is also built with planted bugs, and that build must
//! not need nodes and sockets.
