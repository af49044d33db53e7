//! A node of the ring: event loops, the Redis door, and slots on the engine.
