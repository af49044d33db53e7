//! The ring in a simulation: nodes, network, disks and clocks that fail from a seed.
