"""Stores: where tables lie, named by a path or URL."""

from __future__ import annotations

import contextlib
import glob
import html
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn, overload
from urllib.parse import quote

from . import _atoll
from ._convert import fields, label, names, whole
from ._table import Table
from .errors import InvalidInputError, NotFoundError, UnavailableError, UnsupportedError

#: The file that makes a folder a store.
_STORE_FILE = "store.atoll"

#: When a table is packed.
Pack = Literal["background", "later"]

#: Stores that are open in this process, by their place: what is unpickled here finds them again.
_open: weakref.WeakValueDictionary[tuple[str, bool], Store] = weakref.WeakValueDictionary()


class Store:
    """A store, opened with :func:`open`. Several processes may have one open at once.

    Closes with ``with atoll.open(...) as store:``, with :meth:`close`, or when nothing refers to it any more.
    """

    def __init__(self, url: str, native: _atoll.Store | None, *, read_only: bool) -> None:
        self._url = url
        self._read_only = read_only
        #: Without one it is opened at its first use.
        self._held = native
        self._is_closed = False
        self._packing: weakref.WeakSet[Table] = weakref.WeakSet()
        _open[(url, read_only)] = self

    @property
    def url(self) -> str:
        """The path or URL that it was opened with; a path is absolute."""
        return self._url

    @property
    def _native(self) -> _atoll.Store:
        if self._is_closed:
            raise UnavailableError.hinted("the store was closed", "open it again with atoll.open")
        if self._held is None:
            self._held = _atoll.Store.open(self._url, read_only=self._read_only, create=False)
        return self._held

    def create_table(
        self,
        name: str,
        schema: Any,
        *,
        id: str | Sequence[str],
        index: str | Sequence[str],
        sample_key: str | Sequence[str] | None = None,
        salt: int = 0,
        unique: bool = False,
        pack: Pack = "later",
    ) -> Table:
        """Makes a table, or opens the one that is there if it has the same schema.

        ``schema`` is a PyArrow schema, anything else with an Arrow schema, a mapping of names to types (``"float64"``,
        ``"float32[3]"`` for vectors, ``"timestamp[us]"``, ``"utf8?"`` with a question mark where values may be
        missing, types of Python or NumPy), or an example: a data frame or a mapping of names to arrays.

        ``id`` names a row: no two rows are equal in these columns. ``index`` names the one to eight columns of numbers
        or times that are asked for most: boxes on these read the least. An element of a column of vectors is one as
        well: ``index=("pos[0]", "pos[1]", "pos[2]", "step")``. ``sample_key`` names the unit of
        sampling: with ``"pid"`` a sampled particle keeps its whole path; without, it is the row. ``salt`` draws other
        samples; with 0, equal entities are sampled alike in every table.

        ``unique=True`` refuses rows whose id their run has already (``ConflictError``) or that are twice among the new
        ones (``InvalidInputError``); nothing of such an append is kept. Each append then looks for what it
        repeats, which costs little where the step is part of ``id`` and ``index``. Runs are told apart: rows appended
        without ``run=`` are a run of this process's own. Without ``unique``, keeping ids distinct is up to you.

        ``pack`` says when what is appended is rearranged so that questions read little: ``"background"`` in a thread of
        this process while the table is open (:meth:`Table.keep_packed`), ``"later"`` when somebody calls
        :meth:`Table.pack` or ``atoll table pack``.

        Raises ``ConflictError`` if there is one with another schema, ``InvalidInputError`` naming the column.
        """
        id, index = names(id, "id"), names(index, "index")
        sample_key = [] if sample_key is None else names(sample_key, "sample_key")
        # What names a row is never missing; most tools do not say so.
        named = {*id, *sample_key}
        columns = [(column, kind, nullable and column not in named) for column, kind, nullable in fields(schema)]
        name, native, salt = label(name, "the name of a table"), self._native, whole(salt, "salt")
        _check_pack(pack)
        return self._packed(Table(native.create_table(name, columns, id, sample_key, index, salt, unique), self), pack)

    def table(self, name: str, *, pack: Pack = "later") -> Table:
        """Opens a table; ``pack`` as for :meth:`create_table`.

        Raises ``NotFoundError`` if there is none of that name.
        """
        _check_pack(pack)
        return self._packed(Table(self._native.table(label(name, "the name of a table")), self), pack)

    def _packed(self, table: Table, pack: Pack) -> Table:
        if pack == "background" and not self._read_only:
            table.keep_packed()
        return table

    def sync(self) -> None:
        """Returns when everything that was appended so far is on the disk, and survives a loss of power.

        Without it what was appended survives the end of this process, and reaches the disk a little later. Raises what went
        wrong with that, also where the folder was removed while it was open.
        """
        self._native.sync()

    def tables(self) -> list[str]:
        """The names of its tables."""
        return [name for name, _ in self._native.tables()]

    def drop_table(self, name: str) -> None:
        """Takes a table away, rows and all.

        Raises ``NotFoundError`` if there is none of that name.
        """
        self._native.drop_table(label(name, "the name of a table"))

    def close(self) -> None:
        """Closes it. Returns when what was appended is on the disk, and raises what went wrong with that.

        Tables of it that are still held keep working, and keep it open until they go. What keeps tables of it packed ends;
        raises what went wrong there, if it had ended by itself.
        """
        native, self._held, self._is_closed = self._held, None, True
        _open.pop((self._url, self._read_only), None)
        failed: Exception | None = None
        for table in list(self._packing):
            try:
                table.stop_packing()
            except Exception as error:
                failed = failed or error
        self._packing.clear()
        if native is not None:
            try:
                native.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _close_behind(self.close, error)

    def _place(self) -> tuple[str, bool]:
        if self._url == "mem:":
            raise UnsupportedError.hinted(
                "a store in memory cannot be reached from elsewhere", "use a folder to share it"
            )
        return self._url, self._read_only

    def __reduce__(self) -> tuple[Any, ...]:
        from ._reopened import reopened_store

        return reopened_store, self._place()

    def _repr_html_(self) -> str:
        listed = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(', '.join(columns))}</td></tr>"
            for name, columns in self._native.tables()
        )
        head = "<tr><th>table</th><th>columns</th></tr>"
        return f"<p>Store <b>{html.escape(self._url)}</b></p><table><thead>{head}</thead><tbody>{listed}</tbody></table>"

    def __repr__(self) -> str:
        return f"<atoll store {self._url}{' (closed)' if self._is_closed else ''}>"


class Stores:
    """Several stores, opened with :func:`open`: a table of all of them is one table, to be asked and not to be changed.

    The same laws hold as for one table: its rows are those of all stores, a sample of it is the samples of all, and an
    entity of the sample key that has rows in several stores is one unit.
    """

    def __init__(self, stores: Sequence[Store]) -> None:
        self._stores = tuple(stores)

    @property
    def urls(self) -> list[str]:
        """The paths or URLs of the stores."""
        return [store.url for store in self._stores]

    def tables(self) -> list[str]:
        """The names of the tables that all of them have."""
        common = set.intersection(*(set(store.tables()) for store in self._stores))
        return sorted(common)

    def table(self, name: str) -> Table:
        """The table of this name of all stores, as one.

        A column that only some of them have may be null there, and is null in the rows of the others.

        Raises ``NotFoundError`` where a store has none of that name, ``InvalidInputError`` where roles or salts differ,
        or columns of one name; both name the store.
        """
        tables = []
        for store in self._stores:
            try:
                tables.append(store.table(name))
            except NotFoundError:
                raise NotFoundError.hinted(
                    f'{store.url} has no table "{name}"', "open the stores that have it, by a list of them"
                ) from None
        for store, table in zip(self._stores, tables, strict=True):
            try:
                _atoll.union([tables[0]._native, table._native])
            except InvalidInputError as error:
                raise InvalidInputError.hinted(
                    f'table "{name}" of {store.url} does not go with that of {self._stores[0].url}: {error}',
                    "tables that are asked as one have the same roles and salt, and columns of one name are the same",
                ) from None
        return Table(_atoll.union([table._native for table in tables]), self)

    def create_table(self, name: str, *_: Any, **__: Any) -> NoReturn:
        """Raises ``UnsupportedError``: a table is made in one store."""
        raise UnsupportedError.hinted(
            f'several stores as one can only be asked: table "{name}" would be in none of them',
            "open the one that is to have it",
        )

    def close(self) -> None:
        """Closes all of them, and then raises what went wrong."""
        with contextlib.ExitStack() as all_of_them:
            for store in self._stores:
                all_of_them.callback(store.close)

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _close_behind(self.close, error)

    def _place(self) -> tuple[Any, ...]:
        return tuple(store._place() for store in self._stores)

    def __reduce__(self) -> tuple[Any, ...]:
        from ._reopened import reopened_stores

        return reopened_stores, (self._place(),)

    def _repr_html_(self) -> str:
        listed = "".join(f"<li>{html.escape(url)}</li>" for url in self.urls)
        names = ", ".join(html.escape(name) for name in self.tables())
        return f"<p>{len(self._stores)} stores as one, with the tables {names}</p><ul>{listed}</ul>"

    def __repr__(self) -> str:
        return f"<{len(self._stores)} atoll stores as one: {', '.join(self.urls)}>"


@overload
def open(
    url: str | os.PathLike[str],
    *,
    read_only: bool = False,
    create: bool = True,
    memory_bytes: int | None = None,
    keep_seconds: int | None = None,
) -> Store: ...
@overload
def open(
    url: list[Any] | tuple[Any, ...],
    *,
    read_only: bool = False,
    create: bool = True,
    memory_bytes: int | None = None,
    keep_seconds: int | None = None,
) -> Stores: ...
def open(
    url: str | os.PathLike[str] | list[Any] | tuple[Any, ...],
    *,
    read_only: bool = False,
    create: bool = True,
    memory_bytes: int | None = None,
    keep_seconds: int | None = None,
) -> Store | Stores:
    """Opens a store: a folder by its path, ``file:/scratch/run?mode=read``, ``mem:`` for one in memory, or one on other
    machines: ``cassandra://HOST/KEYSPACE`` or ``ring://HOST:PORT/KEYSPACE``.

    A list of them, or a path with a ``*`` such as ``"runs/*"``, opens all: :class:`Stores`, of which a table is the union
    of theirs and can only be asked. Then none is made that is not there. A checker of types cannot see a ``*``:
    ``["runs/*"]`` is Stores to it as well.

    ``read_only`` changes not a byte. ``create=True``, the default, makes a store where there is none, **also where a path
    is mistyped**: programs that only read pass ``create=False``. ``memory_bytes`` is the budget of caches and buffers
    (1 GiB by default); ``keep_seconds`` is how long space that nothing refers to any more is kept for readers (600 by
    default).

    A path may begin with ``~``, the home of its user; ``"./~"`` is a folder that is called so.

    Raises ``NotFoundError`` where there is no store and none may be made, ``UnavailableError`` where the process that
    owns it cannot be reached, ``InvalidInputError`` for a text that names no store.
    """
    if isinstance(url, (list, tuple)) or "*" in os.fspath(url):
        places = _several(url)
        return Stores(
            [
                open(place, read_only=read_only, create=False, memory_bytes=memory_bytes, keep_seconds=keep_seconds)
                for place in places
            ]
        )
    url = _absolute(_at_home(os.fspath(url)))
    memory_bytes = None if memory_bytes is None else whole(memory_bytes, "memory_bytes")
    keep_seconds = None if keep_seconds is None else whole(keep_seconds, "keep_seconds")
    native = _atoll.Store.open(
        url, read_only=read_only, create=create, memory_bytes=memory_bytes, keep_seconds=keep_seconds
    )
    return Store(url, native, read_only=read_only)


def open_here(url: str, read_only: bool) -> Store | None:
    """The store of that place that is open in this process, if one is."""
    return _open.get((url, read_only))


def _several(places: Any) -> list[str]:
    """Each of several stores, a pattern as the folders that it matches, none of them twice."""
    found: dict[str, str] = {}
    for place in [places] if isinstance(places, (str, os.PathLike)) else places:
        text = _at_home(os.fspath(place))
        matched = [text]
        if "*" in text:
            # What holds no store, such as a file that lies beside them, is none of them.
            folders = sorted(glob.glob(text, recursive=True))
            matched = [folder for folder in folders if os.path.exists(os.path.join(folder, _STORE_FILE))]
            if not matched:
                raise NotFoundError.hinted(f"no store is at {text}", "a pattern names the folders of stores")
        for one in map(_absolute, matched):
            # A link such as runs/latest is no store of its own: its rows would be there twice.
            found.setdefault(os.path.realpath(one) if os.path.exists(one) else one, one)
    if not found:
        raise InvalidInputError("a list of no stores cannot be opened")
    return list(found.values())


def _at_home(path: str) -> str:
    """A path as the shell has it, in which ``~`` is somebody's home."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise InvalidInputError.hinted(
            f"{path} is in the home of a user whom this machine does not know", f'a folder that is called so is "./{path}"'
        )
    return expanded


def _absolute(url: str) -> str:
    """A path, also that of a ``file:`` URL, as one that means the same in every process and folder; another URL as it is."""
    scheme, _, rest = url.partition(":")
    is_url = ":" in url and scheme.isalnum() and "/" not in scheme
    if is_url and scheme == "file":
        path, mark, query = rest.partition("?")
        is_relative = path and not path.startswith("/")
        return f"file:{os.path.normpath(f'{quote(os.getcwd())}/{path}')}{mark}{query}" if is_relative else url
    return url if is_url or not url or "?" in url else os.path.abspath(url)


def _check_pack(pack: str) -> None:
    if pack not in ("background", "later"):
        raise InvalidInputError.hinted(f"a table cannot be packed {pack!r}", 'it is pack="background" or pack="later"')


def _close_behind(close: Callable[[], None], error: BaseException | None) -> None:
    """Closes at the end of a block, which may have failed."""
    try:
        close()
    except Exception as failed:
        if error is None:
            raise
        # What is on its way out says more; it must not be hidden.
        error.add_note(f"besides, closing the store failed: {failed}")
