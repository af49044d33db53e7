"""Packing in the background of the process that has a table open."""

import gc
import math
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

import atoll
from conftest import particles

IDLE = 0.05


def made(store: atoll.Store, **words: object) -> atoll.Table:
    return store.create_table("run", particles(10, seed=1), id=("pid", "step"), index=("x", "step"), **words)


def until(holds, seconds: float = 30.0) -> None:
    """Wait until another thread has made the condition true."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.005)


def packers() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue
    return [name for name in names if name == "atoll-pack"]


def test_a_table_that_rests_is_packed_and_answers_as_before(store: atoll.Store) -> None:
    table = made(store)
    table.keep_packed(idle=IDLE)
    for seed in range(20):
        table.append(particles(100, seed=seed))
    before = table.sample(0.3).count()
    until(lambda: table.info().blocks == 0)
    assert table.info().cubes >= 1
    assert table.info().rows == table.count() == 2_000
    assert table.sample(0.3).count() == before
    # The version exists a moment before the thread that made it has counted it.
    until(lambda: table.packing.rows >= 2_000)
    table.stop_packing()
    assert table.packing is None
    table.append(particles(100, seed=99))
    assert table.info().blocks == 1


def test_it_ends_with_the_store_promptly_and_with_the_last_reference(store: atoll.Store) -> None:
    table = made(store)
    # The idle time that it waits for does not pass during this test.
    table.keep_packed(idle=3600.0)
    table.append(particles(1_000, seed=1))
    until(lambda: len(packers()) == 1)
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 10.0
    until(lambda: not packers())
    with atoll.open(store.url) as again:
        held = again.table("run", pack="background")
        assert held.packing is not None
        del held
        gc.collect()
        until(lambda: not packers())


@pytest.mark.parametrize("place", ["read_only", "?mode=read", "?mode=salvage"])
def test_a_store_that_is_opened_to_read_is_not_packed(tmp_path: Path, place: str) -> None:
    with atoll.open(tmp_path / "store") as store:
        made(store).append(particles(100, seed=1))
    is_argument = place == "read_only"
    url = tmp_path / "store" if is_argument else f"file:{quote(str(tmp_path / 'store'))}{place}"
    with atoll.open(url, read_only=is_argument) as store:
        table = store.table("run", pack="background")
        assert table.packing is None and not packers()
        assert table.count() == 100


def test_the_interpreter_goes_on_while_it_packs(store: atoll.Store) -> None:
    table = made(store)
    for seed in range(30):
        table.append(particles(20_000, seed=seed))
    table.keep_packed(idle=IDLE)
    # Measured in processor time of this process, mostly packing, so that a busy machine does not fail the test.
    longest, last = 0.0, (began := time.process_time())
    while table.info().blocks:
        now = time.process_time()
        longest, last = max(longest, now - last), now
    assert longest < min(1.0, (last - began) / 2)
    assert threading.active_count() == 1


def test_a_pack_reads_and_writes_no_more_than_it_may(store: atoll.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(store)
    table.append(particles(20_000, seed=1))
    held = table.info().bytes
    began = time.monotonic()
    packed = table.pack(whole=True, bytes_per_second=2 * held)
    # At that pace it takes half a second to read its block, and about as long to write its cubes.
    assert time.monotonic() - began >= 0.8 * (packed.bytes_read + packed.bytes_written) / (2 * held)
    assert packed.bytes_read >= held and table.info().blocks == 0
    # What opens a table passes the limits on.
    asked: list[dict] = []
    monkeypatch.setattr(atoll.Table, "keep_packed", lambda self, **words: asked.append(words))
    words = {"pack": "background", "pack_share": 0.5, "pack_bytes_per_second": 1_000}
    made(store, **words)
    store.table("run", **words)
    store.table("run", pack="background")
    limits = {"share": 0.5, "bytes_per_second": 1_000}
    assert asked == [limits, limits, {"share": 1.0, "bytes_per_second": None}]


def test_what_makes_no_sense_is_refused_and_what_goes_wrong_is_told(store: atoll.Store) -> None:
    with pytest.raises(atoll.errors.InvalidInputError, match="pack"):
        made(store, pack="sometimes")
    for words in ({"pack_share": 0.0}, {"pack_share": 1.5}, {"pack_share": math.nan}, {"pack_bytes_per_second": 0}):
        with pytest.raises(atoll.errors.InvalidInputError, match="packing cannot use"):
            made(store, pack="background", **words)
    with pytest.raises(atoll.errors.InvalidInputError, match="in the background") as error:
        made(store, pack_bytes_per_second=1_000)
    assert "pack(share=" in error.value.hint
    assert store.tables() == []
    table = made(store)
    for words in ({"share": 0.0}, {"share": 1.5}, {"bytes_per_second": 0}, {"idle": -1.0}):
        with pytest.raises(atoll.errors.InvalidInputError):
            table.keep_packed(**words)
    for words in ({"share": 0.0}, {"bytes_per_second": 0}, {"bytes_per_second": -1}, {"bytes_per_second": 0.5}):
        with pytest.raises(atoll.errors.InvalidInputError):
            table.pack(**words)
    table.append(particles(100, seed=1))
    table.keep_packed(idle=IDLE)
    until(lambda: table.info().blocks == 0)
    store.drop_table("run")
    until(lambda: not packers())
    with pytest.raises(atoll.errors.NotFoundError):
        _ = table.packing
    table.stop_packing()
