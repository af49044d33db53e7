"""A synthetic run of the same shape as the simulation's: particles are carried down a tube that branches twice.

It has the same bytes on every machine with the same NumPy, because it uses only one seeded generator. It stands in
where the simulation itself cannot run, and the table states which of the two was used.
"""

from collections.abc import Iterator

import numpy as np

from .rows import PARTICLES, STEP_EVERY

_LEGS = np.array([40.0, 18.0, 11.0, 16.0], dtype=np.float32)
"""Lengths of the four tubes that a particle passes, in order."""

_BORE = 1.4
"""Radius of the tubes."""

_LOST = 0.002
"""The share of particles that leave the simulation at some step, as in the real one."""


class Tube:
    """A run of `steps` output steps of `particles` particles."""

    def __init__(self, steps: int, particles: int = PARTICLES, seed: int = 90210) -> None:
        random = np.random.default_rng(seed)
        self.steps = steps
        self.particles = particles
        self._random = random
        self._type = np.where(random.random(particles) < 0.3, 2, 1).astype(np.int8)
        self._start = random.uniform(0.0, 33.0, particles).astype(np.float32)
        self._side = np.sign(random.random((2, particles)) - 0.5).astype(np.float32)
        self._radius = (_BORE * np.sqrt(random.random(particles))).astype(np.float32)
        self._angle = random.uniform(0, 2 * np.pi, particles).astype(np.float32)
        # Flow is fastest on the axis, and heavy particles are slower: most have arrived after two thirds of the run.
        drift = random.lognormal(0.0, 0.4, particles) * (1.2 - (self._radius / _BORE) ** 2)
        self._speed = (drift * np.where(self._type == 2, 0.7, 1.0) * 120.0 / steps).astype(np.float32)
        lost = random.random(particles) < _LOST
        self._lost_at = np.where(lost, random.integers(1, steps + 1, particles), steps + 1)

    def frames(self) -> Iterator[dict[str, np.ndarray]]:
        """Each output step's columns, by name; the rows are in no particular order, as a simulation leaves them."""
        for frame in range(self.steps):
            alive = np.flatnonzero(self._lost_at > frame)
            yield self._frame(frame, self._random.permutation(alive))

    def _frame(self, frame: int, of: np.ndarray) -> dict[str, np.ndarray]:
        travelled = self._start[of] + self._speed[of] * frame
        arrived = travelled >= _LEGS.sum()
        leg, place, direction = self._place(np.minimum(travelled, _LEGS.sum() - 1e-3), of)
        angle = self._angle[of] + np.float32(0.02) * frame
        noise = self._random.normal(0.0, 0.03, (3, len(of))).astype(np.float32)
        across = (self._radius[of] * np.cos(angle), self._radius[of] * np.sin(angle))
        place = place + _lateral(leg, *across) + noise
        speed = np.where(arrived, 0.0, self._speed[of]).astype(np.float32)
        velocity = direction * speed + self._random.normal(0.0, 0.05, (3, len(of))).astype(np.float32)
        columns = {
            "pid": of.astype(np.int32),
            "step": np.full(len(of), frame * STEP_EVERY, dtype=np.int64),
            "type": self._type[of],
        }
        names = ("x", "y", "z", "vx", "vy", "vz")
        columns.update(zip(names, np.concatenate([place, velocity]).astype(np.float32), strict=True))
        return columns

    def _place(self, travelled: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The leg of each particle, the position of the leg's axis there, and its direction."""
        ends = np.cumsum(_LEGS)
        leg = np.searchsorted(ends, travelled, side="right").clip(0, 3)
        gone = np.clip(travelled[None, :] - (ends - _LEGS)[:, None], 0.0, _LEGS[:, None])
        side_x, side_y = self._side[0, of], self._side[1, of]
        place = np.stack([gone[1] * side_x, gone[2] * side_y, 40.0 - gone[0] - gone[3]]).astype(np.float32)
        nothing, down = np.zeros(len(of), np.float32), np.full(len(of), -1.0, np.float32)
        ways = [(nothing, nothing, down), (side_x, nothing, nothing), (nothing, side_y, nothing)]
        ways.append((nothing, nothing, down))
        direction = np.stack([np.choose(leg, [way[axis] for way in ways]) for axis in range(3)])
        return leg, place, direction


def _lateral(leg: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The offset from a leg's axis, in the plane across it."""
    nothing = np.zeros_like(first)
    x = np.choose(leg, [first, nothing, first, first])
    y = np.choose(leg, [second, first, nothing, second])
    z = np.choose(leg, [nothing, second, second, nothing])
    return np.stack([x, y, z])
