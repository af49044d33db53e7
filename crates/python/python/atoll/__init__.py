"""Atoll: tables in which a sample of any region costs only what it returns.

>>> import atoll
>>> store = atoll.open("mem:")
>>> table = store.create_table("points", {"id": "int64", "x": "float64"}, id="id", index="x")
>>> table.append({"id": [1, 2, 3], "x": [0.1, 0.5, 0.9]})
2
>>> sorted(table.box(x=(0, 0.6)).numpy()["id"].tolist())
[1, 2]

:func:`open` a store, create a table with :meth:`Store.create_table` and fill it with :meth:`Table.append`. Then ask:
``table.box(...).where(...).select(...).sample(0.01)``, and take the answer as Arrow, Polars, pandas or NumPy. A running
simulation writes its steps through a :class:`Writer`.
"""

from . import errors
from ._answer import Answer, Work
from ._atoll import __version__
from ._cell import Cell
from ._estimate import Bin, Estimate, Groups
from ._expression import Expression, col
from ._query import Query, Refined, Split
from ._store import Store, Stores, open
from ._table import Table
from ._told import Copied, Info, Loaded, Packed, Run, Step, Vacuumed
from .errors import AtollError
from .writer import Writer

__all__ = [
    "Answer",
    "AtollError",
    "Bin",
    "Cell",
    "Copied",
    "Estimate",
    "Expression",
    "Groups",
    "Info",
    "Loaded",
    "Packed",
    "Query",
    "Refined",
    "Run",
    "Split",
    "Step",
    "Store",
    "Stores",
    "Table",
    "Vacuumed",
    "Work",
    "Writer",
    "__version__",
    "col",
    "errors",
    "open",
]
