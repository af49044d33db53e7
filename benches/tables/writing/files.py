"""Writers of files: the bare columns, HDF5, and text."""

import h5py
import numpy as np
import polars as pl

from .base import Frame, Writer


class RawAppend(Writer):
    """Appends column after column to one file: a bound that no format can beat."""

    name = "raw append"

    def start(self, frame: Frame) -> None:
        self._file = (self.folder / "raw").open("wb", buffering=0)

    def step(self, frame: Frame) -> None:
        for values in frame.values():
            self._file.write(np.ascontiguousarray(values).data)
        self.sync(self._file.fileno())

    def finish(self) -> None:
        self._file.close()


class Hdf5(Writer):
    """h5py: a group for each step, a contiguous dataset for each column."""

    name = "hdf5"

    def start(self, frame: Frame) -> None:
        self._file = h5py.File(self.folder / "run.h5", "w", libver="latest")

    def step(self, frame: Frame) -> None:
        group = self._file.create_group(str(int(frame["step"][0])))
        for name, values in frame.items():
            group.create_dataset(name, data=values)
        self._file.flush()
        self.sync(self._file.id.get_vfd_handle())

    def finish(self) -> None:
        self._file.close()


class Csv(Writer):
    """Polars' CSV writer, the fastest that was found."""

    name = "csv"

    def start(self, frame: Frame) -> None:
        self._file = (self.folder / "run.csv").open("wb")

    def step(self, frame: Frame) -> None:
        pl.DataFrame(frame).write_csv(self._file, include_header=False)
        self._file.flush()
        self.sync(self._file.fileno())

    def finish(self) -> None:
        self._file.close()
