"""What every adapter offers, and the meaning of an acknowledgement, which is the same for all."""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np

Frame = dict[str, np.ndarray]
"""The columns of one step."""


class Writer(ABC):
    """A program that stores a run: `start`, `step` for each step, `finish`.

    A step is acknowledged when the operating system has it, or with `is_synced` when the disk has it.
    """

    name: ClassVar[str]

    def __init__(self, folder: Path, *, is_synced: bool) -> None:
        self.folder = folder
        self.is_synced = is_synced

    @abstractmethod
    def start(self, frame: Frame) -> None:
        """Prepares for the run, given the first frame; not timed."""

    @abstractmethod
    def step(self, frame: Frame) -> None:
        """Stores a step; when it returns, the step is acknowledged."""

    @abstractmethod
    def finish(self) -> None:
        """Ends the run; not timed."""

    def wrong(self, frames: list[Frame]) -> list[str]:
        """What is missing or differs from what was written, after the end; not timed, and only asked of Atoll."""
        return []

    def sync(self, *files: Path | int) -> None:
        """Waits until these files, given by path or descriptor, are on the disk, if steps have to be."""
        if not self.is_synced:
            return
        for file in files:
            descriptor = file if isinstance(file, int) else os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                if descriptor is not file:
                    os.close(descriptor)
