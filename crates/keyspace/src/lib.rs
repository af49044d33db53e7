//! What a slot holds, and what commands do to it.
//!
//! Invariant: what a write does and answers follows from the cells, the command and the time it was given, and from
//! nothing else: every copy of a slot comes to the same.
