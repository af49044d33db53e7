"""Stores: places that hold tables, named by a path or URL."""

from __future__ import annotations

import bisect
import contextlib
import glob
import html
import json
import os
import re
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn, SupportsIndex, overload
from urllib.parse import quote, unquote_to_bytes

from . import _atoll
from ._attributes import changes_of, value_of_all
from ._convert import fields, label, names, number, whole, with_units
from ._table import Table, budget_of
from .errors import AtollError, InvalidInputError, NotFoundError, UnavailableError, UnsupportedError

#: The file whose presence makes a folder a store.
_STORE_FILE = "store.atoll"

#: The beginning of the options of a URL, behind its question mark.
_OPTION = re.compile(r"[a-z][a-z-]*=")

#: When a table is packed (see :meth:`Store.create_table`).
Pack = Literal["background", "later"]

#: The stores that are open in this process, by place: unpickling finds them here instead of opening them again.
_open: weakref.WeakValueDictionary[tuple[str, bool], Store] = weakref.WeakValueDictionary()


class Store:
    """A store, opened with :func:`open`. Several processes may have the same store open at once.

    It closes at the end of ``with atoll.open(...) as store:``, with :meth:`close`, or when nothing refers to it any
    more.
    """

    def __init__(
        self,
        url: str,
        native: _atoll.Store | None,
        *,
        read_only: bool,
        memory_bytes: int | None = None,
        keep_seconds: int | None = None,
    ) -> None:
        self._url = url
        self._read_only = read_only
        self._memory_bytes, self._keep_seconds = memory_bytes, keep_seconds
        #: The native store; ``None`` means that the first use opens it.
        self._held = native
        self._is_closed = False
        self._packing: weakref.WeakSet[Table] = weakref.WeakSet()
        _open[(url, read_only)] = self

    @property
    def url(self) -> str:
        """The path or URL that the store was opened with; a path is absolute."""
        return self._url

    @property
    def _native(self) -> _atoll.Store:
        if self._is_closed:
            raise UnavailableError.hinted("the store was closed", "open it again with atoll.open")
        if self._held is None:
            self._held = _atoll.Store.open(
                self._url,
                read_only=self._read_only,
                create=False,
                memory_bytes=self._memory_bytes,
                keep_seconds=self._keep_seconds,
            )
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
        units: Mapping[str, str] | None = None,
        time_unit: str | None = None,
        pack: Pack = "later",
        pack_share: float = 1.0,
        pack_bytes_per_second: SupportsIndex | None = None,
    ) -> Table:
        """Create a table, or open the existing one if its schema is the same.

        ``schema`` is a PyArrow schema, any other object with an Arrow schema, a mapping of names to types
        (``"float64"``, ``"float32[3]"`` for vectors, ``"timestamp[us]"``, ``"utf8?"`` with a question mark where values
        may be missing, or a type of Python, NumPy, PyArrow or Polars), or an example: a data frame or a mapping of
        names to arrays.

        ``id`` names the columns that identify a row; only ``unique`` refuses rows that are equal in all of them.
        ``index`` names the one to eight columns of numbers or times that most queries restrict: boxes on these columns
        read the least. An element of a vector column can be an index column: ``index=("pos[0]", "pos[1]", "pos[2]",
        "step")``. ``sample_key`` names the unit of sampling: with ``"pid"``, a sampled particle keeps its whole path;
        by default each row is a unit. A different ``salt`` draws different samples; with 0, equal entities are sampled
        alike in every table.

        ``unique=True`` refuses rows whose id their run already has (``ConflictError``) or that occur twice among the
        new rows (``InvalidInputError``); nothing of such an append is kept. Each append then looks for duplicates,
        which costs little where the step is part of ``id`` and ``index``. Ids are unique within a run: rows appended
        without ``run=`` belong to a run private to this handle of the table. Without ``unique``, keeping ids distinct
        is up to you.

        ``units`` are the units of columns, as texts of your choice: ``units={"vz": "Å/ps"}``. They are kept with the
        columns, and estimates have them (:attr:`Estimate.value_unit`). Of the metadata of the fields of an Arrow schema
        ``unit`` and ``description`` are kept as well; a unit given here takes the place of one given there. Units and
        descriptions belong to the schema: an existing table must have the same.

        ``time_unit`` is the unit of the times of steps, such as ``"ps"``, a text of your choice as well
        (:attr:`Table.time_unit`). It belongs to the schema, too.

        ``pack`` says when appended rows are rearranged so that queries read little: ``"background"`` in a thread of
        this process while the table is open (:meth:`Table.keep_packed`), ``"later"`` when :meth:`Table.pack` or
        ``atoll table pack`` is called. In the background, it uses at most ``pack_share`` of a processor, above 0 and up
        to 1, and reads and writes at most ``pack_bytes_per_second``, so that the simulation goes first.

        Raises ``ConflictError`` if the table exists with another schema, and ``InvalidInputError`` for an invalid
        schema and for the unit of a column that does not exist, naming the column, and for a limit of packing that
        makes no sense or has no ``pack="background"``, and for a unit of times that is empty or has control characters.
        """
        id, index = names(id, "id"), names(index, "index")
        sample_key = [] if sample_key is None else names(sample_key, "sample_key")
        # The columns that identify a row are never null, but most tools mark every column as nullable.
        named = {*id, *sample_key}
        described = with_units(fields(schema), units)
        columns = [(each, kind, nullable and each not in named, notes) for each, kind, nullable, notes in described]
        name, native, salt = label(name, "the name of a table"), self._native, whole(salt, "salt")
        limits = _limits_of(pack, pack_share, pack_bytes_per_second)
        time_unit = None if time_unit is None else label(time_unit, "time_unit")
        table = Table(native.create_table(name, columns, id, sample_key, index, salt, unique, time_unit), self)
        return self._packed(table, pack, limits)

    def table(
        self,
        name: str,
        *,
        pack: Pack = "later",
        pack_share: float = 1.0,
        pack_bytes_per_second: SupportsIndex | None = None,
    ) -> Table:
        """Open a table; ``pack`` and its limits are as for :meth:`create_table`.

        Raises ``NotFoundError`` if the store has no table of that name, and ``InvalidInputError`` for a limit of
        packing that makes no sense.
        """
        limits = _limits_of(pack, pack_share, pack_bytes_per_second)
        return self._packed(Table(self._native.table(label(name, "the name of a table")), self), pack, limits)

    def _packed(self, table: Table, pack: Pack, limits: tuple[float, int | None]) -> Table:
        # The options of a URL may open it for reading, too.
        if pack == "background" and not self._native.is_read_only:
            table.keep_packed(share=limits[0], bytes_per_second=limits[1])
        return table

    def sync(self) -> None:
        """Wait until everything appended so far is on disk, where it survives a loss of power.

        Without this call, appended rows survive the end of this process and reach the disk a little later. Raises any
        error of that write, also if the folder was removed while the store was open.
        """
        self._native.sync()

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return [name for name, _ in self._native.tables()]

    def drop_table(self, name: str) -> None:
        """Delete a table with all of its rows.

        Raises ``NotFoundError`` if the store has no table of that name.
        """
        self._native.drop_table(label(name, "the name of a table"))

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the store; empty if there are none.

        They are notes on the store as a whole, such as the project that it belongs to. Tables, runs and steps have
        their own (:meth:`Table.attributes`).
        """
        noted: dict[str, Any] = json.loads(self._native.attributes())
        return noted

    def set_attributes(self, attributes: Mapping[str, Any], *, replace: bool = False) -> None:
        """Set attributes of the store, with values as for :meth:`Table.set_attributes`.

        ``store.set_attributes({"project": "tubes", "seed": 42})``. Other attributes stay, also those that other
        processes set at the same time; a value of ``None`` removes an attribute, and ``replace=True`` every attribute
        that is not named.

        Raises ``InvalidInputError`` for a value that cannot be stored, and ``ReadOnlyError`` for a store that was opened
        with ``read_only=True``.
        """
        self._native.note(changes_of(attributes, self.attributes() if replace else ()))

    def close(self) -> None:
        """Close the store. Returns once everything appended is on disk, and raises any error of that write.

        Tables of the store that are still referenced keep working, and keep it open until they are released. Background
        packing of its tables stops; if packing had already failed, its error is raised.
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

    def _place(self) -> tuple[str, bool, int | None, int | None]:
        # With or without options, such as mem:?memory=64MiB.
        if self._url.startswith("mem:"):
            raise UnsupportedError.hinted(
                "a store in memory cannot be reached from elsewhere", "use a folder to share it"
            )
        return self._url, self._read_only, self._memory_bytes, self._keep_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        from ._reopened import reopened_store

        return reopened_store, self._place()

    def _repr_html_(self) -> str | None:
        try:
            tables, attributes = self._native.tables(), self.attributes()
        except AtollError:
            # Closed, or not reachable: a notebook shows the text of `repr` instead.
            return None
        listed = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(', '.join(columns))}</td></tr>" for name, columns in tables
        )
        head = "<tr><th>table</th><th>columns</th></tr>"
        table = f"<table><thead>{head}</thead><tbody>{listed}</tbody></table>"
        noted = ", ".join(f"{name} = {value}" for name, value in attributes.items())
        told = f"<p>with the attributes {html.escape(noted)}</p>" if noted else ""
        return f"<p>Store <b>{html.escape(self._url)}</b></p>{told}{table}"

    def __repr__(self) -> str:
        return f"<atoll store {self._url}{' (closed)' if self._is_closed else ''}>"


class Stores:
    """Several stores, opened with :func:`open`: their tables of one name are queried as one table, which is read-only.

    The guarantees of a single table hold: its rows are the rows of all stores, a sample of it is the union of their
    samples, and an entity of the sample key with rows in several stores is one unit.

    Queries raise ``InvalidInputError`` if two of the stores have rows in common, which would count twice: one store
    under two names, such as two hosts of a ring, or a store and its copy. A folder that is named twice is opened once.
    A copy is noticed whatever was packed and vacuumed since, unless an earlier checkout of Atoll wrote its rows.
    """

    def __init__(self, stores: Sequence[Store]) -> None:
        self._stores = tuple(stores)

    @property
    def urls(self) -> list[str]:
        """The paths or URLs of the stores."""
        return [store.url for store in self._stores]

    def tables(self) -> list[str]:
        """Return the names of the tables that every store has."""
        common = set.intersection(*(set(store.tables()) for store in self._stores))
        return sorted(common)

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the stores; those without any are left out.

        Raises ``UnsupportedError`` where the others differ.
        """
        noted = [known for known in (store.attributes() for store in self._stores) if known]
        kept: dict[str, Any] = value_of_all(noted, "what is noted of them") if noted else {}
        return kept

    def table(self, name: str) -> Table:
        """Open the tables of this name in all stores as one table.

        A column that only some of the stores have is nullable, and null in the rows of the others. Its unit and its
        description are those of the first store that has one.

        Raises ``NotFoundError`` where a store has no table of that name, and ``InvalidInputError`` where roles, salts
        or the types or units of columns of one name differ; both name the store.
        """
        tables = []
        for store in self._stores:
            try:
                tables.append(store.table(name))
            except NotFoundError:
                raise NotFoundError.hinted(
                    f'{store.url} has no table "{name}"', "open only the stores that have it, as a list"
                ) from None
        natives = [table._native for table in tables]
        try:
            return Table(_atoll.union(natives), self)
        except InvalidInputError as error:
            # The first table that does not fit those before it.
            ends = range(2, len(natives))
            end = 2 + bisect.bisect_left(ends, True, key=lambda end: not _is_union(natives[:end]))
            raise InvalidInputError.hinted(
                f'table "{name}" of {self._stores[end - 1].url} cannot be combined with those before it: {error}',
                "the tables of a union need the same roles and salt, and columns of one name the same type and unit",
            ) from None

    def create_table(self, name: str, *_: Any, **__: Any) -> NoReturn:
        """Raise ``UnsupportedError``: a table is created in one store."""
        raise UnsupportedError.hinted(
            f'several stores opened as one are read-only: table "{name}" would be in none of them',
            "open the store that should have it",
        )

    def close(self) -> None:
        """Close every store, then raise any error."""
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

    def _repr_html_(self) -> str | None:
        try:
            tables = self.tables()
        except AtollError:
            return None
        listed = "".join(f"<li>{html.escape(url)}</li>" for url in self.urls)
        names = ", ".join(map(html.escape, tables))
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
    """Open a store.

    ``url`` is the path of a folder, ``file:/scratch/run?mode=read``, ``mem:`` for a store in memory, or a store on
    other machines: ``cassandra://HOST/KEYSPACE`` or ``ring://HOST:PORT/KEYSPACE``. A path may begin with ``~``, the
    home of its user; ``"./~"`` is a folder of that name.

    A list of these, or a path that is a pattern of the shell, opens all of them as :class:`Stores`, whose tables are the
    unions of theirs and read-only; no store is created then. In a pattern, ``*`` stands for any characters, ``?`` for
    one, and ``[ab]`` or ``[0-3]`` for one of these; a folder that is really called ``[ab]`` is that folder. In a
    ``file:`` URL only ``*`` stands for others, and its options are those of every store. If no store matches a path
    with brackets alone, and it is not in a list, it names a new store, which is created with a warning. A type checker
    cannot see a pattern: write ``["runs/*"]`` for it to infer Stores.

    ``read_only`` opens the store without changing a byte. ``create=True``, the default, creates a store where there is
    none, **also where a path is mistyped**: programs that only read pass ``create=False``. ``memory_bytes`` is the
    budget of caches and buffers (1 GiB by default). ``keep_seconds`` is how long unreferenced space is kept for readers
    that may still use it (600 by default), but never more than a quarter of the file: beyond that the oldest is used
    again earlier.

    Raises ``NotFoundError`` where there is no store and none may be created, or none that a pattern matches,
    ``UnavailableError`` where the process
    that owns the store cannot be reached, and ``InvalidInputError`` for a text that names no store.
    """
    memory_bytes = None if memory_bytes is None else whole(memory_bytes, "memory_bytes")
    keep_seconds = None if keep_seconds is None else whole(keep_seconds, "keep_seconds")

    def opened(place: str, create: bool) -> Store:
        # The place of one store, also if its name looks like a pattern.
        native = _atoll.Store.open(
            place, read_only=read_only, create=create, memory_bytes=memory_bytes, keep_seconds=keep_seconds
        )
        return Store(place, native, read_only=read_only, memory_bytes=memory_bytes, keep_seconds=keep_seconds)

    if isinstance(url, (list, tuple)):
        return Stores([opened(place, create=False) for place in _several(url)])
    text = _at_home(os.fspath(url))
    if _is_pattern(text):
        if not create or read_only or not _is_new_name(text):
            return Stores([opened(place, create=False) for place in _several([text])])
        warnings.warn(
            f"no store matches {text}: a new store of that name is created; create=False creates none", stacklevel=2
        )
    return opened(_absolute(text), create)


def open_here(url: str, read_only: bool) -> Store | None:
    """Return the store of that place if it is open in this process."""
    return _open.get((url, read_only))


def _several(places: Sequence[Any]) -> list[str]:
    """Return the place of each store once, with every pattern replaced by the stores that it matches."""
    found: dict[str, str] = {}
    for place in places:
        text = _at_home(os.fspath(place))
        if not _is_pattern(text):
            one = _absolute(text)
            # A link such as runs/latest is no store of its own: its rows would count twice.
            found.setdefault(_folder_of(one), one)
            continue
        folders = _matching(text)
        if not folders:
            raise NotFoundError.hinted(
                f"no store is at {text}",
                "it is a pattern of folders with stores: * stands for any characters, ? for one, [ab] for one of these",
            )
        # Every store that the path of a URL matches is opened with the options of the URL.
        options = text[text.index("?") :] if "?" in text and _file_path(text) is not None else ""
        for folder in folders:
            found.setdefault(os.path.realpath(folder), _place_of(folder, options))
    if not found:
        raise InvalidInputError("an empty list of stores cannot be opened")
    return list(found.values())


def _matching(pattern: str) -> list[str]:
    """Return the folders that match a pattern and have a store."""
    # Skip matches that are no stores, such as files beside them.
    pattern = _with_names(pattern) if _file_path(pattern) is None else _of_file_path(pattern)
    folders = sorted(glob.glob(pattern, recursive=True))
    return [folder for folder in folders if os.path.exists(os.path.join(folder, _STORE_FILE))]


def _with_names(pattern: str) -> str:
    """Escape the folders at the front that are really called that: ``exp[1]/*`` must not match in ``exp1``."""
    parts = pattern.split("/")
    count = 0
    while count < len(parts) and not re.search(r"[*?]", parts[count]):
        if not os.path.exists("/".join(parts[: count + 1]) or "/"):
            break
        count += 1
    return "/".join([*map(glob.escape, parts[:count]), *parts[count:]])


def _is_new_name(pattern: str) -> bool:
    """Whether a pattern may be the name of a new store: only brackets make it a pattern, and no store matches it."""
    return "*" not in pattern and "?" not in pattern and not _matching(pattern)


def _folder_of(place: str) -> str:
    """Return the folder that a path or a ``file:`` URL names, without links; any other place as it is."""
    folder = place
    if _is_url(place):
        path = _file_path(place)
        if path is None:
            return place
        folder = _unquoted(path)
    return os.path.realpath(folder) if os.path.exists(folder) else place


def _file_path(place: str) -> str | None:
    """Return the path in a ``file:`` URL of this host, still quoted; none for any other place."""
    if not _is_url(place):
        return None
    scheme, _, rest = place.partition(":")
    path = rest.partition("?")[0]
    host, slash, behind = path[2:].partition("/") if path.startswith("//") else ("", "", path)
    return slash + behind if scheme == "file" and host.lower() in ("", "localhost") else None


def _of_file_path(url: str) -> str:
    """Return the pattern of paths that a ``file:`` URL means, in which only ``*`` stands for others."""
    return "*".join(glob.escape(_unquoted(part)) for part in (_file_path(url) or "").split("*"))


def _unquoted(path: str) -> str:
    return os.fsdecode(unquote_to_bytes(path))


def _place_of(folder: str, options: str) -> str:
    """Return the path of a folder, or its URL if it has options or the path would mean something else."""
    path = os.path.abspath(folder)
    return f"file:{quote(os.fsencode(path))}{options}" if options or "?" in path or "*" in path else path


def _is_pattern(text: str) -> bool:
    """Whether a path may name several folders. Folders that are really called ``[ab]`` are meant by that name."""
    if _is_url(text):
        path = _file_path(text)
        return "*" in (text if path is None else path)
    if "*" in text:
        return True
    if "?" in text:
        # Options of a URL that lacks its scheme are refused by the native half, unless stores are really called that.
        return not _OPTION.match(text.partition("?")[2]) or bool(_matching(text))
    parts = text.split("/")
    ends = (end for end, part in enumerate(parts, 1) if re.search(r"\[.+\]", part))
    return not all(os.path.exists("/".join(parts[:end])) for end in ends)


def _is_url(text: str) -> bool:
    scheme = text.partition(":")[0]
    return ":" in text and scheme.isalnum() and "/" not in scheme


def _at_home(path: str) -> str:
    """Expand a leading ``~`` as the shell does."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise InvalidInputError.hinted(
            f"{path} is in the home of a user whom this machine does not know", f'for a folder of that name, write "./{path}"'
        )
    return expanded


def _absolute(url: str) -> str:
    """Make a path or ``file:`` URL absolute, so that it means the same in every process; keep other URLs."""
    scheme, _, rest = url.partition(":")
    is_url = _is_url(url)
    if is_url and scheme == "file":
        path, mark, query = rest.partition("?")
        is_relative = path and not path.startswith("/")
        return f"file:{os.path.normpath(f'{quote(os.getcwd())}/{path}')}{mark}{query}" if is_relative else url
    return url if is_url or not url or "?" in url else os.path.abspath(url)


def _is_union(tables: Sequence[_atoll.Table]) -> bool:
    """Whether these tables can be combined."""
    try:
        _atoll.union(list(tables))
    except InvalidInputError:
        return False
    return True


def _limits_of(pack: str, share: float, bytes_per_second: SupportsIndex | None) -> tuple[float, int | None]:
    """Check when a table is packed, and the limits of it, before anything is opened or created."""
    if pack not in ("background", "later"):
        raise InvalidInputError(f'pack is "background" or "later", not {pack!r}')
    share, budget = number(share, "pack_share"), budget_of(bytes_per_second)
    if not 0.0 < share <= 1.0 or budget == 0:
        raise InvalidInputError.hinted(
            f"packing cannot use {share:g} of a processor and {budget} bytes per second",
            "pack_share is above 0 and up to 1, pack_bytes_per_second is 1 or more, or None for no limit",
        )
    if pack == "later" and (share, budget) != (1.0, None):
        raise InvalidInputError.hinted(
            "pack_share and pack_bytes_per_second limit packing in the background",
            'add pack="background", or pass them to pack(share=..., bytes_per_second=...)',
        )
    return share, budget


def _close_behind(close: Callable[[], None], error: BaseException | None) -> None:
    """Close at the end of a ``with`` block, which may have failed with ``error``."""
    try:
        close()
    except Exception as failed:
        if error is None:
            raise
        # The error of the block says more: keep it, and add this one as a note.
        error.add_note(f"in addition, closing the store failed: {failed}")
