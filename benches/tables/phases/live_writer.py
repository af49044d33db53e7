"""The process that writes while another one reads: a run of two ranks at a steady rate."""

import time
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from .. import machine
from ..data.dataset import Dataset
from ..data.rows import COLUMNS, INDEX, SCHEMA, STEP_EVERY

RUN = "run"

FRAMES = 200
"""Frames kept in memory; a longer run starts again with the first frame, under new step numbers."""


@dataclass(frozen=True)
class Order:
    """What to write, and how fast."""

    place: str
    steps: int
    step_seconds: float


@dataclass(frozen=True)
class Appended:
    """One step: when its write began and was acknowledged (in monotonic seconds), and the version that includes it."""

    began: float
    acknowledged: float
    version: int
    rows: int


def write(order: Order, dataset: Dataset, appended, is_looked_at) -> None:  # noqa: ANN001: of whichever context
    """Appends `order.steps` steps as two ranks that divide the space at x = 0; reports when it is ready, and each step.

    It stays until everything was read, because the other process reaches the store through this one.
    """
    import atoll

    machine.end_with_parent()
    frames = []
    for batch in islice(dataset.batches(), min(order.steps, FRAMES)):
        frame = {name: batch[name].to_numpy() for name in COLUMNS}
        left = frame["x"] < 0
        frames.append([{name: values[side] for name, values in frame.items()} for side in (left, ~left)])
    with atoll.open(order.place) as store:
        table = store.create_table(RUN, SCHEMA, id=("pid", "step"), index=INDEX, pack="background")
        table.begin(RUN, 2)
        appended.put(None)
        started = time.monotonic() + 1.0
        for number, frame in zip(range(order.steps), cycle(frames), strict=False):
            frame = [at(rows, number) for rows in frame]
            time.sleep(max(0.0, started + number * order.step_seconds - time.monotonic()))
            began = time.monotonic()
            for rank, rows in enumerate(frame):
                version = table.append(rows, run=RUN, step=int(rows["step"][0]), rank=rank)
            appended.put(Appended(began, time.monotonic(), version, sum(len(rows["pid"]) for rows in frame)))
        is_looked_at.wait(timeout=400)


def at(rows: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    """These rows under another step number."""
    return {**rows, "step": np.full(len(rows["pid"]), number * STEP_EVERY, dtype=np.int64)}
