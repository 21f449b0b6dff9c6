"""Python that belongs to the user: read, adjusted and run, its failures told in three sentences."""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import importlib.abc
import importlib.machinery
import random
import sys
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from breakeven.errors import BreakevenError, SubjectError, UsageError


@contextlib.contextmanager
def guarded(required: str, advice: str, home: Path | None = None) -> Iterator[None]:
    """Run the user's code: what it prints goes to stderr, what it raises becomes a SubjectError.

    Args:
        required: first sentence of the error.
        advice: last sentence of the error.
        home: the user's file or folder, whose lines are the ones worth naming.

    Raises:
        SubjectError: the code raised, or called `sys.exit`.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except BreakevenError:
        raise
    except (Exception, SystemExit) as error:
        raise SubjectError(required, told(error, home), advice) from error


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python's, numpy's and torch's generators start from `seed`, and are put back afterwards."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed % (1 << 32))
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)


def told(error: BaseException, home: Path | None = None) -> str:
    """A sentence on an exception: type, first line of its message, the user's file and line."""
    place = _place(error, home)
    at = f" at {place}" if place else ""
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return f"It called sys.exit({code}){at}."
    first = str(error).strip().split("\n")[0].rstrip(".")[:300]
    if isinstance(error, SyntaxError):
        first = error.msg
    return f"{type(error).__name__}: {first or 'no message'}{at}."


def _place(error: BaseException, home: Path | None) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    if home is None:
        return ""
    folder = home.resolve() if home.is_dir() else home.resolve().parent
    frames = traceback.extract_tb(error.__traceback__)
    inside = [
        frame
        for frame in frames
        if Path(frame.filename).resolve().is_relative_to(folder)
        and "site-packages" not in Path(frame.filename).parts
    ]
    exact = [frame for frame in inside if Path(frame.filename).resolve() == home.resolve()]
    for frame in reversed(exact or inside):
        return f"{frame.filename}:{frame.lineno}"
    return ""


def run_file(path: Path, overrides: Mapping[str, str] | None = None) -> types.ModuleType:
    """The module that `path` defines, with top-level constants replaced before it runs.

    Modules beside it can be imported, installed ones come first; `__name__` is not "__main__".
    Random generators start from seed 0, so that every process builds the same weights.

    Raises:
        UsageError: no such file, or an override that it has no constant for.
        SubjectError: a syntax error, or the file raised while it ran.
    """
    tree = parsed(path)
    replace_constants(tree, overrides or {}, path)
    return run_tree(tree, path)


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a Python file.

    Raises:
        UsageError: no such file.
        SubjectError: a syntax error, with its line.
    """
    text = read_source(path)
    with guarded(
        f"{path.name} has to be valid Python.", "Correct that line and run it again.", path
    ):
        return ast.parse(text, filename=str(path))


def read_source(path: Path) -> str:
    """The text of a Python file; UsageError where it is missing or not UTF-8."""
    if not path.exists():
        raise UsageError(
            "The subject has to be a file that exists.",
            f"There is no {path}.",
            "Check the path; it is taken from the current folder.",
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "The subject has to be a readable Python file in UTF-8.",
            f"{path}: {error}.",
            "Give the path of the .py file itself.",
        ) from None


def run_tree(tree: ast.Module, path: Path) -> types.ModuleType:
    """Run an (adjusted) syntax tree as the module of `path`, lines kept."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    module = types.ModuleType(f"breakeven_subject_{path.stem}_{digest}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and tracing look it up there
    serve(path.resolve().parent)
    with guarded(
        f"{path.name} has to run when it is imported.",
        "Run it with python first; what it imports must be installed here.",
        path,
    ):
        code = compile(tree, str(path), "exec")
        with seeded(0):
            exec(code, module.__dict__)
    return module


class _Beside(importlib.abc.MetaPathFinder):
    """Finds modules that lie beside the user's files, after everything that is installed.

    The folder does not go into `sys.path`: there, a folder of results named like an optional
    package (z3, onnx) would be imported as that package, by torch and not by the user.
    """

    def __init__(self) -> None:
        self.folders: list[str] = []

    def serve(self, folder: Path) -> None:
        """Look into `folder` too, before those named earlier."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        self.folders = [str(folder), *(other for other in self.folders if other != str(folder))]

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, self.folders, target)
        return spec if spec is not None and spec.origin is not None else None


_BESIDE = _Beside()


def serve(folder: Path) -> None:
    """Let modules in `folder` be imported by this process, after all that is installed."""
    _BESIDE.serve(folder)


def constants(tree: ast.Module) -> list[str]:
    """Names assigned once or more at the top level of a file, in order, private ones left out."""
    names: dict[str, None] = {}
    for node in tree.body:
        for name, _ in assigned(node):
            if not name.startswith("_"):
                names[name] = None
    return list(names)


def replace_constants(tree: ast.Module, overrides: Mapping[str, str], path: Path) -> None:
    """Put new values into top-level assignments: `N = 4096` becomes `N = 8` for {"N": "8"}.

    A value is Python: a literal, or an expression such as `2 * M` or `torch.bfloat16`. Where the
    file has a string, it is taken as a string.

    Raises:
        UsageError: no such constant (the message lists those there are), or a value that is not
            Python.
    """
    known = constants(tree)
    for name, text in overrides.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            raise UsageError(
                f"--set names a constant of {path.name}.",
                f"It has no {name!r}; its constants are {', '.join(known) or 'none'}.",
                f"Did you mean {near[0]!r}?" if near else "Name one of these, or change the file.",
            )
        for position, node in enumerate(tree.body):
            tree.body[position] = _replaced(node, name, text)
    ast.fix_missing_locations(tree)


def assigned(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """The (name, value) pairs of a plain assignment, `a, b = 1, 2` included."""
    if isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
        return [(node.target.id, node.value)]
    if not isinstance(node, ast.Assign):
        return []
    pairs: list[tuple[str, ast.expr]] = []
    for target in node.targets:
        if isinstance(target, ast.Name):
            pairs.append((target.id, node.value))
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            both = zip(target.elts, node.value.elts, strict=False)
            pairs += [(part.id, value) for part, value in both if isinstance(part, ast.Name)]
    return pairs


def _replaced(node: ast.stmt, name: str, text: str) -> ast.stmt:
    for found, value in assigned(node):
        if found != name:
            continue
        new = ast.copy_location(_expression(name, text, value), value)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is value:
            node.value = new
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            node.value.elts[node.value.elts.index(value)] = new
    return node


def _expression(name: str, text: str, old: ast.expr) -> ast.expr:
    if isinstance(old, ast.Constant) and isinstance(old.value, str):
        with contextlib.suppress(ValueError, SyntaxError):
            if isinstance(literal := ast.literal_eval(text), str):
                return ast.Constant(literal)
        return ast.Constant(text)
    try:
        new = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        new = ast.Name(text)
    number = isinstance(old, ast.Constant) and isinstance(old.value, int | float)
    if isinstance(new, ast.Name) and not new.id.isidentifier():
        number = True
    if number and (isinstance(new, ast.Name) or _is_text(new)):
        raise UsageError(
            f"{name} is {ast.unparse(old)} in the file, so --set needs a value of that kind.",
            f"Found {text!r}.",
            f"Write for example --set {name}={ast.unparse(old)}.",
        )
    return new


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
