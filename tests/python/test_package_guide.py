"""The guide's and the README's pages with Python: every example of them runs, word for word and in order."""

import re
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGE = GUIDE / "python.md"


def examples(page: Path = PAGE) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_pages_that_use_one_store_name_their_tables_apart() -> None:
    pages = [ROOT / "README.md", *(GUIDE / name for name in ("tables.md", "python.md", "simulations.md"))]
    # A reader who works through the pages still has the tables of the earlier ones.
    made = r"""(?:\bstore|open\("results"\))\.create_table\(\s*"([^"]+)"|^atoll table create (\S+)"""
    names = [{a or b for a, b in re.findall(made, page.read_text(), flags=re.MULTILINE)} for page in pages]
    assert all(names), names
    assert len(set.union(*names)) == sum(map(len, names)), names


def test_wrong_input_is_told_as_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = examples(GUIDE / "bad-input.md")
    exec(compile(example, "bad-input.md", "exec"), {"__name__": "guide"})
    told = ["1", "InvalidInputError", "ConflictError", "InvalidInputError", "2"]
    assert capsys.readouterr().out.splitlines() == told


def test_the_readme_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = examples(ROOT / "README.md")
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    (said,) = re.findall(r"  # (.*)$", example, flags=re.MULTILINE)
    assert capsys.readouterr().out == f"{said}\n"


def test_every_example_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    found = examples()
    assert len(found) >= 8
    names: dict = {"__name__": "guide"}
    for number, example in enumerate(found, 1):
        exec(compile(example, f"{PAGE.name}, example {number}", "exec"), names)
        # A line `print(...)  # told` shows what it prints.
        told = re.findall(r"^print\(.*\)  # (.*)$", example, flags=re.MULTILINE)
        assert capsys.readouterr().out.splitlines()[: len(told)] == told, f"example {number}"
    assert (tmp_path / "results").is_dir()
