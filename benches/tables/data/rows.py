"""The schema of a row: a particle at an output step.

Coordinates and velocities are 32-bit floats on every side, as simulations dump them. `prio` is the row's weight without
its lower 33 bits: what a peer needs to draw the same sample, in the four bytes that suit it best.
"""

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("pid", pa.int32(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("type", pa.int8(), nullable=False),
        pa.field("x", pa.float32(), nullable=False),
        pa.field("y", pa.float32(), nullable=False),
        pa.field("z", pa.float32(), nullable=False),
        pa.field("vx", pa.float32(), nullable=False),
        pa.field("vy", pa.float32(), nullable=False),
        pa.field("vz", pa.float32(), nullable=False),
    ]
)
COLUMNS = tuple(SCHEMA.names)
INDEX = ("x", "y", "z", "step")
AXES = ("x", "y", "z")
PRIORITY = pa.field("prio", pa.int32(), nullable=False)
SCHEMA_WITH_PRIORITY = SCHEMA.append(PRIORITY)

PRIORITY_BITS = 31
"""How many bits of a weight peers have."""

ROW_BYTES = sum(field.type.bit_width // 8 for field in SCHEMA)
"""Bytes of a row as plain columns: 37."""

STEP_EVERY = 80
"""Simulated steps from one output to the next."""

PARTICLES = 50_000
"""Particles of the simulation, and so the most rows of one step."""
