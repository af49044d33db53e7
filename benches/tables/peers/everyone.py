"""All rivals that answer questions, in the order of the tables."""

from .base import Peer
from .duckdb_parquet import DuckdbParquet
from .duckdb_table import DuckdbTable
from .polars_parquet import PolarsParquet
from .postgis import Postgis3d, Postgis4d
from .spark import SparkParquet, SparkWarm

PEERS: tuple[type[Peer], ...] = (
    DuckdbTable,
    DuckdbParquet,
    PolarsParquet,
    Postgis3d,
    Postgis4d,
    SparkParquet,
    SparkWarm,
)
