"""ADIOS2 with BP5: a step for each step, every column a global array."""

from ..peers.base import Unavailable
from .base import Frame, Writer


class Adios2(Writer):
    """The library with which large simulations write."""

    name = "adios2 bp5"

    def start(self, frame: Frame) -> None:
        try:
            from adios2 import Adios, Stream
        except ImportError as missing:
            raise Unavailable(f"ADIOS2 is not installed: {missing}") from missing
        io = Adios().declare_io("run")
        io.set_engine("BP5")
        # A step must be handed over by the time it is acknowledged, not some time later.
        io.set_parameters({"AsyncWrite": "Off", "NumAggregators": "1"})
        self._path = self.folder / "run.bp"
        self._stream = Stream(io, str(self._path), "w")

    def step(self, frame: Frame) -> None:
        self._stream.begin_step()
        for name, values in frame.items():
            self._stream.write(name, values, [len(values)], [0], [len(values)])
        self._stream.end_step()
        self.sync(*self._path.iterdir())

    def finish(self) -> None:
        self._stream.close()
