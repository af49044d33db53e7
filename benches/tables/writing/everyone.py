"""All programs that store, Atoll first."""

from .adios import Adios2
from .base import Writer
from .files import Csv, Hdf5, RawAppend
from .lammps_dump import LammpsDump
from .table import AtollWriter

WRITERS: tuple[type[Writer], ...] = (AtollWriter, RawAppend, Hdf5, Adios2, LammpsDump, Csv)
