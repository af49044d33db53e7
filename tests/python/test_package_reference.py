"""``docs/reference/python.md`` says what the package's docstrings say: every public name, with its signature."""

import ast
import inspect
import os
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import atoll
import atoll.errors
import atoll.lammps
import atoll.mdanalysis
from atoll._checkpoints import Checkpoint
from atoll._estimate import Tolerant
from atoll._plot import Plot

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
WRITE = "WRITE_REFERENCE"

#: The public names in the order in which one meets them.
NAMES = [
    "open", "Store", "Stores", "Query", "Table", "Split", "col", "Expression", "Cell", "Answer", "Work", "Estimate", "Groups",
    "Bin", "Refined", "Writer", "Run", "Step", "Info", "Packed", "Loaded", "Copied", "Vacuumed", "AtollError",
]

#: Classes without a public name, with their headings, behind the public class whose methods return them.
RETURNED: dict[str, list[tuple[str, type]]] = {
    "Query": [("atoll.Query.plot", Plot), ("Tolerant", Tolerant)],
    "Writer": [("Checkpoint", Checkpoint)],
}

BEGINNING = """\
# Every name of the Python package

The signatures and docstrings of `atoll`, as `help(atoll.Table)` and the like show them. The page is made from the
package, and a test compares the two. [Tables in Python](../guide/python.md) explains by examples. You meet a class whose
heading does not begin with `atoll` only as an answer.
"""


def markdown(doc: str) -> str:
    """A docstring as Markdown: roles and double backticks become code, examples become blocks."""
    text = re.sub(r":(?:class|meth|func|attr|mod|data):`~?([^`]+)`", r"`\1`", doc).replace("``", "`")
    # What tables and queries have in common is shown with queries.
    text = re.sub(r"`(?:Asking|Choosing|Estimating)\b", "`Query", text)
    text = re.sub(r" +# doctest: .*", "", text)
    lines: list[str] = []
    in_example = False
    for line in text.splitlines():
        if line.startswith(">>> ") and not in_example:
            lines.append("```pycon")
            in_example = True
        elif in_example and not line:
            lines.append("```")
            in_example = False
        lines.append(line)
    return "\n".join([*lines, "```"] if in_example else lines)


def doc_of(thing: Any) -> str:
    return markdown(inspect.getdoc(thing) or "")


def in_cell(text: str) -> str:
    """A text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def signature(name: str, function: Any) -> str:
    """A call as it is written, without ``self``; what is too long for a line has one argument in each."""
    whole = inspect.signature(function)
    arguments = [argument for argument in _arguments(list(whole.parameters.values())) if argument not in ("self", "cls")]
    # The package's annotations are texts already: as they were written.
    answer = "" if whole.return_annotation is inspect.Signature.empty else f" -> {whole.return_annotation}"
    line = f"{name}({', '.join(arguments)}){answer}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){answer}"])


def _arguments(parameters: list[inspect.Parameter]) -> list[str]:
    """The arguments as they are written, with the mark from which on they need their names."""
    written, has_mark = [], False
    for each in parameters:
        has_mark = has_mark or each.kind is each.VAR_POSITIONAL
        if each.kind is each.KEYWORD_ONLY and not has_mark:
            written.append("*")
            has_mark = True
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {each.annotation}"
        default = "" if each.default is each.empty else f"{' = ' if kind else '='}{each.default!r}"
        written.append(f"{stars}{each.name}{kind}{default}")
    return written


def members(kind: type | ModuleType) -> list[tuple[str, Any]]:
    """The public names that a class, or a module, itself defines, as the source orders them."""
    return [(name, member) for name, member in vars(kind).items() if not name.startswith("_")]


def private_bases(kind: type) -> list[type]:
    """Bases of the package that have no public name: what they define is found at the classes that have one."""
    return [
        base for base in kind.__mro__[1:] if base.__module__.startswith("atoll.") and base.__name__ not in atoll.__all__
    ]


def fields(kind: type) -> list[tuple[str, str, str]]:
    """The declared attributes of a class: name, type, and the comment above each that begins with ``#:``."""
    found, comment = [], ""
    for line in inspect.getsource(kind).splitlines():
        field = re.fullmatch(r"    (\w+): ([^=]+?)(?: = .*)?", line)
        if line.startswith("    #: "):
            comment += line[7:] + " "
        elif field and field[1] in vars(kind).get("__annotations__", {}) and not field[1].startswith("_"):
            # A step of a refinement is generic in its estimate.
            found.append((field[1], field[2].replace("_Estimated", "Estimate | None"), markdown(comment)))
            comment = ""
    return found


def of_class(name: str, kind: type, bases: list[type]) -> str:
    """A class: its docstring, a table of its fields and properties, and its methods; with those of private bases."""
    parts = [f"## {name}\n\n{doc_of(kind)}\n"]
    owners = (*bases[::-1], kind)
    # What a base defines again is shown once.
    public = list({member: each for owner in owners for member, each in members(owner)}.items())
    told = [field for owner in owners for field in fields(owner)]
    rows = [f"| `{field}` | `{in_cell(kind_of)}` | {in_cell(doc)} |" for field, kind_of, doc in told]
    for member, each in public:
        if isinstance(each, property):
            answer = inspect.signature(each.fget).return_annotation
            rows.append(f"| `{member}` | `{in_cell(answer)}` | {in_cell(doc_of(each))} |")
    if rows:
        parts.append("\n".join(["| attribute | type | |", "| --- | --- | --- |", *rows]) + "\n")
    for member, each in public:
        function = each.__func__ if isinstance(each, classmethod | staticmethod) else each
        if inspect.isfunction(function):
            parts.append(f"### {name}.{member}\n\n{of_call(member, function)}")
    return "\n".join(parts)


def of_call(name: str, function: Any) -> str:
    return f"```text\n{signature(name, function)}\n```\n\n{doc_of(function)}\n"


def page() -> str:
    """The whole page."""
    assert {"__version__", "errors", *NAMES} == set(atoll.__all__), "NAMES orders every public name"
    parts, shown = [BEGINNING], set()
    for name in NAMES:
        thing = getattr(atoll, name)
        if inspect.isfunction(thing):
            parts.append(f"## atoll.{name}\n\n{of_call(name, thing)}")
        elif name != "AtollError":
            bases = private_bases(thing)
            parts.append(of_class(f"atoll.{name}", thing, [base for base in bases if base not in shown]))
            if shown.intersection(bases):
                parts.append("Whatever a [`Query`](#atollquery) can be asked, it can be asked as well.\n")
            shown.update(bases)
        parts += [of_class(heading, kind, []) for heading, kind in RETURNED.get(name, [])]
    for module in (atoll.lammps, atoll.mdanalysis):
        parts.append(f"## {module.__name__}\n\n{doc_of(module)}\n")
        for name, function in members(module):
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                parts.append(f"### {module.__name__}.{name}\n\n{of_call(name, function)}")
    for name in atoll.errors.__all__:
        parts.append(of_class(f"atoll.errors.{name}", getattr(atoll.errors, name), []))
    return "\n".join(parts)


def test_the_reference_has_every_public_name_as_its_docstring_explains_it() -> None:
    made = page()
    if WRITE in os.environ:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(made)
    kept = PAGE.read_text() if PAGE.exists() else ""
    differing = next((pair for pair in zip(kept.splitlines(), made.splitlines(), strict=False) if len(set(pair)) > 1), None)
    assert kept == made, f"made anew by running this test with {WRITE}=1: {differing}"


@pytest.mark.parametrize("name", [name for name in atoll.__all__ if inspect.isclass(getattr(atoll, name))])
def test_every_public_method_has_a_docstring(name: str) -> None:
    kind = getattr(atoll, name)
    # Tuples and data classes without a docstring get their signature for one.
    assert inspect.getdoc(kind) and not inspect.getdoc(kind).startswith(f"{name}("), name
    for member, each in members(kind):
        if callable(each) or isinstance(each, property):
            assert inspect.getdoc(each), f"{name}.{member}"


def set_by(kind: type) -> set[str]:
    """The public attributes that the methods of a class set on its objects."""
    source = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind))))
    stored = [node for node in source if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    own = [node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"]
    return {name for name in own if not name.startswith("_")}


@pytest.mark.parametrize("name", [name for name in atoll.__all__ if inspect.isclass(getattr(atoll, name))])
def test_every_public_attribute_is_in_the_reference(name: str) -> None:
    owners = [getattr(atoll, name), *private_bases(getattr(atoll, name))]
    declared = {field for owner in owners for field, _, _ in fields(owner)}
    assert set().union(*map(set_by, owners)) <= declared


def test_every_class_of_the_package_that_a_call_returns_is_in_the_reference() -> None:
    made = page()
    shown = {heading.rpartition(".")[2] for heading in re.findall(r"^## (\S+)$", made, flags=re.MULTILINE)}
    answers = re.findall(r"^.*\) -> (.+)$", made, flags=re.MULTILINE)
    words = {word for answer in answers for word in re.findall(r"\w+", answer)}
    modules = [module for name, module in sys.modules.items() if name.startswith("atoll.")]
    found = [getattr(module, word, None) for module in modules for word in words]
    ours = {kind.__name__ for kind in found if inspect.isclass(kind) and kind.__module__.startswith("atoll.")}
    assert {"Answer", "Checkpoint", "Tolerant"} <= ours <= shown
