"""The rules of docs/architecture.md, read from its table and held against the sources."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "breakeven"
PAGE = ROOT / "docs" / "architecture.md"

OPTIONAL = {
    "IPython",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "ray",
    "timm",
    "torchvision",
    "transformers",
}
"""Packages that may be missing, so they are imported where they are needed."""
LAZY = {"cli.py", "__init__.py"}
"""Where our own modules may be imported inside functions: the commands, and the lazy names."""
ENVIRONMENT_READER = "knobs.py"
MOST_LINES, MOST_FUNCTION_LINES = 400, 50


@dataclass(frozen=True)
class Row:
    """A line of the table: a module (`lab/store.py`) or a folder (`lab/subjects/`)."""

    layer: int
    path: str
    place: int


@dataclass(frozen=True)
class Import:
    """`target` is a path as in the table for our modules, else the name of a package."""

    target: str
    ours: bool
    line: int
    inside: bool


def rows(page: str) -> dict[str, Row]:
    """The table's rows by path, in its order."""
    found = re.findall(r"^\| *(\d+) *\| *`([^`]+)` *\| *\S.*\|$", page, re.MULTILINE)
    table = {path: Row(int(layer), path, i) for i, (layer, path) in enumerate(found)}
    assert len(table) == len(found), "a module is listed twice"
    return table


def modules(sources: Path) -> dict[str, Path]:
    """Every source file by its path below `sources`; a folder's `__init__.py` is the folder."""
    found = {}
    for file in sorted(sources.rglob("*.py")):
        path = file.relative_to(sources).as_posix()
        found[path if path == "__init__.py" else path.removesuffix("__init__.py")] = file
    return found


def imports(file: Path, known: dict[str, Path], package: str) -> Iterator[Import]:
    """Every import of a file, those by name (`import_module("...")`) included."""
    tree = ast.parse(file.read_text(), str(file))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        for name in _names(node, file, known, package):
            ours = name.split(".")[0] == package
            target = _path(name, known) if ours else name.split(".")[0]
            yield Import(target, ours, getattr(node, "lineno", 0), id(node) in inside)


def _names(node: ast.AST, file: Path, known: dict[str, Path], package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        start = node.module or ""
        if node.level:
            below = file.relative_to(known["__init__.py"].parent).parent.parts
            parts = [package, *below][: len(below) + 2 - node.level]
            start = ".".join([*parts, *([start] if start else [])])
        longer = [f"{start}.{alias.name}" for alias in node.names]
        is_module = [start.startswith(package) and _is(name, known) for name in longer]
        return [name if own else start for name, own in zip(longer, is_module, strict=True)]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = ast.unparse(node.func).rsplit(".", 1)[-1]
        value = node.args[0].value
        if called in ("import_module", "__import__") and isinstance(value, str):
            return [value]
    return []


def _path(name: str, known: dict[str, Path]) -> str:
    below = "/".join(name.split(".")[1:])
    if not below:
        return "__init__.py"
    return f"{below}/" if f"{below}/" in known else f"{below}.py"


def _is(name: str, known: dict[str, Path]) -> bool:
    return _path(name, known) in known


def wrong_way(source: Row, target: Row) -> str:
    """Why `source` may not import `target`; empty where it may."""
    if target.layer < source.layer:
        return ""
    if target.layer > source.layer:
        return f"layer {source.layer} imports layer {target.layer}"
    if source.path.split("/")[0].removesuffix(".py") and _top(source) != _top(target):
        return "two folders of one layer"
    return "" if target.place < source.place else "it is listed below"


def _top(row: Row) -> str:
    return row.path.split("/")[0] if "/" in row.path else ""


def faults(sources: Path, page: str) -> list[str]:
    """Everything that breaks a rule, one line each."""
    table, known, package = rows(page), modules(sources), sources.name
    found = [f"{path} is not in the table" for path in known if path not in table]
    found += [f"{path} is listed but absent" for path in table if path not in known]
    for path, file in known.items():
        text = file.read_text()
        if path in table:
            for one in imports(file, known, package):
                found += [f"{path}:{one.line} {why}" for why in _fault(path, one, table)]
        found += [f"{path}:{line} {why}" for line, why in _habits(path, ast.parse(text))]
    return list(dict.fromkeys(found))


def _fault(path: str, one: Import, table: dict[str, Row]) -> Iterator[str]:
    if not one.ours:
        if one.inside and one.target not in OPTIONAL and path not in LAZY:
            yield f"imports {one.target} inside a function"
        return
    lazy = one.inside and path in LAZY
    if one.inside and not lazy:
        yield f"imports {one.target} inside a function"
    if path.endswith("/"):
        yield f"a package's __init__ imports {one.target}"
    if one.target not in table:
        yield f"imports {one.target}, which is not in the table"
        return
    if not lazy and (why := wrong_way(table[path], table[one.target])):
        yield f"imports {one.target}: {why}"
    halves = 1 <= table[one.target].layer <= 7
    if path.startswith("lab/") and halves and not path.startswith("lab/compilers/"):
        yield f"the lab reaches into the compiler: {one.target}"


def _habits(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Call) else ""
        reads = text in ("os.environ", "os.environb") or text.startswith("os.getenv(")
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            reads = bool({a.name for a in node.names} & {"environ", "environb", "getenv"})
        if reads and path != ENVIRONMENT_READER:
            yield node.lineno, "reads the environment"  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield node.lineno, "prints"


# ------------------------------------------------------------------------------ the sources


def test_every_import_runs_down_the_table() -> None:
    assert faults(SOURCES, PAGE.read_text()) == []


def test_the_layers_of_the_table_only_rise() -> None:
    layers = [row.layer for row in rows(PAGE.read_text()).values()]
    assert layers == sorted(layers)


def test_folders_are_listed_in_one_piece_and_before_their_modules() -> None:
    """Otherwise "listed above" would depend on where a reader looks."""
    paths = list(rows(PAGE.read_text()))
    for path in paths:
        if path.endswith("/"):
            inside = [i for i, other in enumerate(paths) if other.startswith(path)]
            assert inside == list(range(inside[0], inside[0] + len(inside))), path
            assert paths[inside[0]] == path


def test_sizes_of_modules_and_functions() -> None:
    """Small enough to read: 400 lines a file, 50 a function without its docstring."""
    large = []
    for path, file in modules(SOURCES).items():
        text = file.read_text()
        if text.count("\n") > MOST_LINES:
            large.append(f"{path}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                first = body[0].lineno if body else node.lineno
                if (node.end_lineno or 0) - first + 1 > MOST_FUNCTION_LINES:
                    large.append(f"{path}:{node.lineno} {node.name}")
    assert large == []


def test_importing_the_package_runs_nothing_heavy() -> None:
    code = "import sys, breakeven; sys.exit(' '.join({'torch', 'numpy'} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------ the checker

TABLE = """
| layer | module | holds |
|---|---|---|
| 0 | `__init__.py` | names |
| 0 | `errors.py` | errors |
| 0 | `knobs.py` | knobs |
| 1 | `ir/` | programs |
| 1 | `ir/graph.py` | graphs |
| 2 | `capture/` | capture |
| 2 | `capture/export.py` | export |
| 2 | `passes/` | passes |
| 2 | `passes/rules.py` | rules |
| 8 | `lab/` | the lab |
| 8 | `lab/low.py` | low |
| 8 | `lab/compilers/` | compilers |
| 8 | `lab/compilers/one.py` | one |
| 8 | `lab/high.py` | high |
| 9 | `cli.py` | commands |
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package that keeps every rule of `TABLE`."""
    sources = tmp_path / "breakeven"
    for path in rows(TABLE):
        file = sources / (f"{path}__init__.py" if path.endswith("/") else path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('"""Nothing yet."""\n')
    assert faults(sources, TABLE) == []
    return sources


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("lab/high.py", "from breakeven.lab import low\nfrom breakeven.lab.compilers.one import x"),
        ("lab/high.py", "from breakeven.errors import BreakevenError\nimport breakeven.knobs"),
        ("lab/high.py", "def f():\n    import transformers"),
        ("lab/compilers/one.py", "from breakeven.ir import graph"),
        ("lab/compilers/one.py", "from .. import low"),
        ("capture/export.py", "import torch\nfrom breakeven.ir.graph import Graph"),
        ("knobs.py", "import os\nx = os.environ\nfrom breakeven import errors"),
        (
            "cli.py",
            "from breakeven import __version__\ndef f():\n    from breakeven.lab import low",
        ),
        ("__init__.py", "def __getattr__(name):\n    from breakeven.lab import high"),
        ("lab/low.py", "x.print('a')\nenviron = 1\nimport_module(name)"),
    ],
)
def test_what_is_allowed(tree: Path, path: str, code: str) -> None:
    (tree / path).write_text(code + "\n")
    assert faults(tree, TABLE) == []


@pytest.mark.parametrize(
    ("path", "code", "word"),
    [
        ("errors.py", "from breakeven.lab import low", "layer 0 imports layer 8"),
        ("errors.py", "import breakeven.knobs", "listed below"),
        ("lab/low.py", "from breakeven.lab.high import x", "listed below"),
        ("lab/low.py", "from breakeven.lab import high", "listed below"),
        ("lab/low.py", "from . import high", "listed below"),
        ("lab/low.py", "from .compilers.one import x", "listed below"),
        ("lab/compilers/one.py", "from ..high import x", "listed below"),
        ("lab/low.py", "import breakeven.lab.high as h", "listed below"),
        ("lab/low.py", "from breakeven.lab import low", "listed below"),
        ("lab/high.py", "from breakeven.cli import app", "layer 8 imports layer 9"),
        ("lab/low.py", "if TYPE_CHECKING:\n    from breakeven.lab import high", "listed below"),
        ("capture/export.py", "from breakeven.passes import rules", "two folders"),
        ("passes/rules.py", "from breakeven.capture.export import x", "two folders"),
        ("lab/high.py", "def f():\n    from breakeven.lab import low", "inside a function"),
        ("lab/high.py", "def f():\n    import numpy", "inside a function"),
        ("lab/high.py", "class A:\n    def f(self):\n        import json", "inside a function"),
        ("lab/high.py", "import importlib\nimportlib.import_module('breakeven.cli')", "layer 9"),
        ("lab/high.py", "def f():\n    __import__('breakeven.lab.low')", "inside a function"),
        ("lab/high.py", "from breakeven.ir.graph import Graph", "reaches into the compiler"),
        ("lab/__init__.py", "from breakeven.errors import x", "__init__ imports"),
        ("__init__.py", "from breakeven.lab import high", "layer 0 imports layer 8"),
        ("lab/high.py", "import os\nos.environ['A']", "reads the environment"),
        ("lab/high.py", "import os\nos.getenv('A')", "reads the environment"),
        ("lab/high.py", "from os import environ", "reads the environment"),
        ("lab/high.py", "print('a')", "prints"),
        ("cli.py", "def f():\n    print('a')", "prints"),
        ("lab/new.py", "x = 1", "lab/new.py is not in the table"),
        ("lab/new/__init__.py", "", "lab/new/ is not in the table"),
        ("lab/high.py", "from breakeven.lab.gone import x", "not in the table"),
    ],
)  # fmt: skip
def test_what_is_found(tree: Path, path: str, code: str, word: str) -> None:
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text(textwrap.dedent(code) + "\n")
    found = faults(tree, TABLE)
    assert found and any(word in one for one in found), found


def test_an_absent_module_is_found(tree: Path) -> None:
    (tree / "lab" / "high.py").unlink()
    assert faults(tree, TABLE) == ["lab/high.py is listed but absent"]
