//! The suite of the contract on real nodes of the ring: on one, on three, and on three of which one dies
//! while another joins.
//!
//! A crate of its own, so that the simulation is built without nodes and sockets, once more with mistakes
//! planted.
