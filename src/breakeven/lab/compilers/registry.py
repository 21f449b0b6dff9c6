"""Every compiler by its name; adding one is one file and one line here.

A compiler from elsewhere needs no line: it is named by its file, `path/to/file.py:ClassName`, or
its package offers it under the entry-point group `breakeven_compilers` (name -> `module:Class`).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from breakeven.errors import UsageError
from breakeven.lab.compilers.compiler import Compiler

_HERE = "breakeven.lab.compilers"
_COMPILERS = {
    "eager": f"{_HERE}.eager:Eager",
    "inductor": f"{_HERE}.inductor:Inductor",
    "inductor-freezing": f"{_HERE}.inductor:InductorFreezing",
    "inductor-freezing-max-autotune": f"{_HERE}.inductor:InductorFreezingMaxAutotune",
    "dynamo": f"{_HERE}.capture:Dynamo",
    "aot": f"{_HERE}.capture:Aot",
    "torchscript": f"{_HERE}.torchscript:TorchScript",
    "onnxruntime": f"{_HERE}.onnxruntime:OnnxRuntime",
    "openvino": f"{_HERE}.openvino:OpenVino",
    "openvino-default": f"{_HERE}.openvino:OpenVinoDefault",
}

DEFAULT = (
    "inductor",
    "torchscript",
    "onnxruntime",
    "openvino",
    "openvino-default",
    "inductor-freezing",
)
"""What a study takes where no compiler is named, in the order of its priorities."""

ENTRY_POINTS = "breakeven_compilers"


def names() -> list[str]:
    """Every compiler that can be named: the built-in ones, then those of installed packages."""
    return [*_COMPILERS, *(name for name in _offered() if name not in _COMPILERS)]


def get(name: str) -> Compiler:
    """A compiler by name, or by `path/to/file.py:ClassName`.

    Its module is imported here and not before; its package is not (`Compiler.prepare` does that).
    The name of one that comes from a file is that file's absolute path and the class.

    Raises:
        UsageError: there is no such compiler, file or class.
    """
    path, _, attribute = name.rpartition(":")
    if path.endswith(".py"):
        return _from_file(Path(path).expanduser(), attribute)
    target = _COMPILERS.get(name) or _offered().get(name)
    if target is None:
        raise _unknown(name)
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"The compiler {name!r} is the class {attribute} of the module {module_name}",
            f"That module cannot be imported: {error}",
            "Install what is missing, or choose another from `breakeven list compilers`",
        ) from error
    compiler = _class(module, attribute, name)()
    if name not in _COMPILERS:
        _rename(compiler, name)
    return compiler


def _from_file(path: Path, attribute: str) -> Compiler:
    path = path.resolve()
    if not path.is_file():
        raise UsageError(
            "A compiler is named by its name or as path/to/file.py:ClassName",
            f"There is no file {path}",
            "Check the path; `breakeven list compilers` shows the names",
        )
    compiler = _class(_load(path), attribute, str(path))()
    _rename(compiler, f"{path}:{attribute}")
    return compiler


@cache
def _load(path: Path) -> ModuleType:
    name = f"breakeven_compiler_{path.stem}_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _broken(path, "it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(path, f"running it raised {type(error).__name__}: {error}") from error
    return module


def _broken(path: Path, why: str) -> UsageError:
    return UsageError(
        "The file of a compiler must import without errors",
        f"{path} does not: {why}",
        f"Try `python {path}` until it passes",
    )


def _class(module: ModuleType, attribute: str, where: str) -> type[Compiler]:
    found = getattr(module, attribute, None)
    if inspect.isclass(found) and issubclass(found, Compiler) and not inspect.isabstract(found):
        return found
    ready = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Compiler) and not inspect.isabstract(value)
    ]
    raise UsageError(
        "A compiler is a class derived from breakeven.lab.compilers.compiler.Compiler with "
        "`available` and `compile`",
        f"{attribute!r} of {where} is not one; it has {', '.join(ready) or 'none'}",
        "Name one of these, or complete the class",
    )


def _rename(compiler: Compiler, name: str) -> None:
    """A cell stores the name, and a fresh process must find the compiler again by it."""
    setattr(compiler, "name", name)  # noqa: B010  (shadows the class's own on this instance)


@cache
def _offered() -> dict[str, str]:
    return {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINTS)}


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name.lower(), names(), n=3, cutoff=0.4)
    return UsageError(
        f"A compiler is one of {', '.join(names())}, or path/to/file.py:ClassName",
        f"{name!r} was asked for",
        f"Did you mean {' or '.join(near)}?" if near else "Choose one of them",
    )
