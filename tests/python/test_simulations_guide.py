"""The guide's page about simulations: its examples run, and its restart restarts."""

import re
from pathlib import Path

import numpy
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "simulations.md"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


class Failing:
    """Random numbers that run out, as a job's time does."""

    def __init__(self, calls: int) -> None:
        self.calls, self.random = calls, numpy.random.default_rng(2)

    def normal(self, **named):
        self.calls -= 1
        if self.calls < 0:
            raise InterruptedError
        return self.random.normal(**named)


def test_every_example_runs_and_the_restart_loses_and_doubles_nothing(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "guide"}
    found = examples()
    for number, example in enumerate(found, 1):
        if "resume" in example:
            names["random"], good = Failing(35), names["random"]
            with pytest.raises(InterruptedError):
                exec(compile(example, f"{PAGE.name}, example {number}, cut off", "exec"), names)
            names["random"] = good
        exec(compile(example, f"{PAGE.name}, example {number}", "exec"), names)
        if "resume" in example:
            assert names["checkpoint"].step == 20
    assert len(found) >= 4
    assert capsys.readouterr().out.splitlines()[-1] == "['third try']"
    # Two runs of 50 steps with 1,000 rows each; the one that was interrupted at step 35 is complete.
    steps, counts = numpy.unique(names["table"].numpy()["step"], return_counts=True)
    assert steps.tolist() == list(range(1, 51))
    assert set(counts) == {2_000}
