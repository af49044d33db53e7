"""Estimates: exact where all was read, near the truth elsewhere, and never silent about what is doubtful."""

import math

import numpy
import pytest

import atoll
from conftest import particles

MADE = particles(50_000, seed=5)


@pytest.fixture(scope="module")
def large() -> atoll.Table:
    table = atoll.open("mem:").create_table("run", MADE, id=("pid", "step"), sample_key="pid", index=("x", "step"))
    table.append(MADE)
    return table


def test_what_was_read_whole_is_exact(large: atoll.Table) -> None:
    half = MADE["x"] < 0.5
    query = large.where("x < 0.5")
    for found, truth in [
        (query.mean("pos[2]"), MADE["pos"][half, 2].astype("f8").mean()),
        (query.sum("x"), MADE["x"][half].sum()),
        (query.share(atoll.col("type") == 2), (MADE["type"][half] == 2).mean()),
    ]:
        assert found.is_exact and found.is_valid
        assert found.value == pytest.approx(truth)
        assert found.low == found.high == found.value
        assert "exact" in repr(found)


def test_a_sample_gives_an_interval_that_holds_the_truth(large: atoll.Table) -> None:
    # One sample in twenty misses at 95 %; this one is always the same, and very wide intervals hold in any case.
    query = large.sample(0.2)
    for found, truth in [
        (query.mean("x", confidence=0.9999), MADE["x"].mean()),
        (query.sum("x", confidence=0.9999), MADE["x"].sum()),
        (query.quantile("x", 0.25, confidence=0.9999), numpy.quantile(MADE["x"], 0.25)),
        (query.share("type = 2", confidence=0.9999), (MADE["type"] == 2).mean()),
    ]:
        assert found.is_valid, found
        assert not found.is_exact
        assert found.low < truth < found.high
        assert 0 < found.half_width < abs(truth) / 4
        assert found.rows < 15_000


def test_a_tolerance_is_met_with_as_few_rows_as_that_takes(large: atoll.Table) -> None:
    coarse = large.within(relative=0.05).mean("x")
    fine = large.within(absolute=0.005, max_rows=40_000).mean("x")
    assert coarse.is_valid and coarse.half_width <= 0.05 * coarse.value
    assert fine.is_valid and fine.half_width <= 0.005
    assert coarse.rows_read < fine.rows_read < 50_000
    assert coarse.work.rows_touched < 50_000
    spread = large.within(of_sd=0.1).mean("x")
    assert spread.half_width <= 0.1 * spread.deviation


def test_what_cannot_be_trusted_says_so(large: atoll.Table) -> None:
    few = large.first(5).mean("x")
    assert not few.is_valid
    assert "30 are needed" in " ".join(few.doubts)
    assert "not valid" in repr(few)
    ended = large.within(relative=1e-6, max_rows=2_000).mean("x")
    assert not ended.is_valid
    assert any("tolerance" in doubt for doubt in ended.doubts)


def test_a_question_without_an_answer_is_refused(large: atoll.Table) -> None:
    with pytest.raises(atoll.errors.InvalidInputError, match="one tolerance"):
        large.within()
    with pytest.raises(atoll.errors.InvalidInputError, match="one tolerance"):
        large.within(relative=0.1, absolute=1)
    with pytest.raises(atoll.errors.InvalidInputError):
        large.within(relative=-1).mean("x")
    with pytest.raises(atoll.errors.InvalidInputError):
        large.mean("x", confidence=1.5)
    with pytest.raises(atoll.AtollError, match="nope"):
        large.mean("nope")
    with pytest.raises(atoll.errors.NotFoundError):
        large.mean("x + 1")
    nothing = large.where("x > 2").sample(0.5).mean("x")
    assert math.isnan(nothing.value) and not nothing.is_valid
