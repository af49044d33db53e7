"""What every adapter offers, and the SQL that several of them share."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from ..asked.question import ALL, Question
from ..data.dataset import Dataset
from ..data.rows import AXES, COLUMNS

ATOLL = "atoll"
FLOATS = (*AXES, "vx", "vy", "vz")


class Unavailable(Exception):
    """A program cannot take part here; the text says what is missing and the command that installs it."""


class RivalFailed(Exception):
    """A rival did not complete. No bar of Atoll's fails because of it, but the run ends as failed."""


@contextmanager
def of_rival(name: str) -> Iterator[None]:
    """Attributes errors in the block to this rival; Atoll's own errors pass unchanged."""
    try:
        yield
    except Unavailable:
        raise
    except Exception as error:
        if name == ATOLL:
            raise
        raise RivalFailed(f"{name}: {error!r}") from error


class Peer(ABC):
    """A program that holds the rows and answers questions.

    `build` is called once for a dataset; then `open`, any number of `ask`, and `close`, any number of times.
    """

    name: ClassVar[str]
    is_only_warm: ClassVar[bool] = False
    """Whether it keeps repeatedly read data in memory; if so, it takes no part in cold measurements."""

    def __init__(self, dataset: Dataset, folder: Path) -> None:
        self.dataset = dataset
        self.folder = folder / self.name.replace(" ", "-")

    @abstractmethod
    def build(self) -> None:
        """Loads the rows, unless they are loaded already."""

    @abstractmethod
    def open(self) -> None:
        """Starts the program; afterwards no row may be in memory that is not in the disk's cache."""

    @abstractmethod
    def close(self) -> None:
        """Stops the program; harmless if it is not running."""

    @abstractmethod
    def ask(self, question: Question) -> pa.Table:
        """The rows of the answer with all columns, handed over to Python."""

    def bytes_on_disk(self) -> int:
        """The bytes that the rows take on disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


def sql(question: Question, source: str, *, real: str, hints: tuple[str, ...] = ()) -> str:
    """The question as SQL; `real` is the dialect's name for a 32-bit float."""
    conditions = [*hints, *(_condition(each, real) for each in question.conditions())]
    if question.cut < ALL:
        conditions.append(f"prio < {question.cut}")
    text = f"SELECT {', '.join(COLUMNS)} FROM {source}"
    if conditions:
        text += f" WHERE {' AND '.join(conditions)}"
    if question.limit is not None:
        text += f" ORDER BY prio LIMIT {question.limit}"
    return text


def _condition(condition: tuple[str, str, float], real: str) -> str:
    column, sign, value = condition
    # A bound of the column's own type: a wider one would make some programs widen the column.
    shown = f"CAST({value!r} AS {real})" if column in FLOATS else str(int(value))
    return f"{column} {sign} {shown}"
