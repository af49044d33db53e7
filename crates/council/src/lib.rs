//! The configuration group of a ring: a few nodes that agree on who has which slot. Never on the path of a request.
