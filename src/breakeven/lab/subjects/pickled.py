"""Subjects sent from a running Python program: `pickle:FILE`, written by `breakeven.study`."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from breakeven.errors import StoreError, SubjectError, UsageError
from breakeven.lab.subjects.example import Known, from_example
from breakeven.lab.subjects.source import guarded, serve, told
from breakeven.lab.subjects.subject import Inputs, Subject


def write(
    path: Path, model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Write `(model, args, kwargs)` so that another process can load it with `load`.

    The folders that this program imports from go with it, so that a model class of its own
    modules is found there too.

    Raises:
        SubjectError: the model or its inputs cannot be sent to another process.
        StoreError: the file cannot be written.
    """
    if not callable(model):
        raise SubjectError(
            "study() takes a model that can be called.",
            f"Found a {type(model).__name__}.",
            "Pass a torch.nn.Module or a function.",
        )
    try:
        content = cloudpickle.dumps((model, tuple(args), dict(kwargs)))
    except Exception as error:  # pickling runs code of every class involved
        raise SubjectError(
            "The model and its inputs have to be sent to other processes, by cloudpickle.",
            told(error),
            "Keep locks, files, generators and handles out of the model, or put it into a file "
            "and run `breakeven study file.py`.",
        ) from error
    try:
        partial = path.with_name(path.name + ".part")
        partial.write_bytes(cloudpickle.dumps({"folders": _folders(), "content": content}))
        partial.replace(path)
    except OSError as error:
        raise StoreError(
            "The model has to be written for the measuring processes.",
            f"{path}: {error.strerror or error}.",
            "Choose another folder with out=..., or make room.",
        ) from error


def _folders() -> list[str]:
    """Where this program's own modules lie: `sys.path` without what every Python has."""
    own = {str(Path(place).resolve()) for place in sysconfig.get_paths().values()}
    found = [Path(place).resolve() for place in sys.path]  # "" is the current folder
    return [str(place) for place in found if place.is_dir() and not _installed(place, own)]


def _installed(place: Path, own: set[str]) -> bool:
    parts = set(place.parts)
    return str(place) in own or bool(parts & {"site-packages", "dist-packages", "lib-dynload"})


def load(spec: str, facts: Known | None = None) -> Subject:
    """The subject of a file that `write` has written; its dim is "batch" where eager takes one.

    Raises:
        UsageError: no such file.
        SubjectError: the file does not hold a model and inputs, or the model fails in eager mode.
    """
    path = Path(spec.removeprefix("pickle:")).expanduser()
    if not path.is_file():
        raise UsageError(
            "pickle: takes a file that breakeven.study has written.",
            f"There is no {path}.",
            "Call breakeven.study(model, inputs) again.",
        )

    def build() -> tuple[Callable[..., Any], Inputs]:
        with guarded(
            f"{path.name} has to be loaded in a measuring process.",
            "What the model imports must be importable from any folder; install it, or put the "
            "model into a file and run `breakeven study file.py`.",
        ):
            content = cloudpickle.loads(path.read_bytes())
            if isinstance(content, dict) and "content" in content:
                for folder in reversed(content["folders"]):
                    serve(Path(folder))
                content = cloudpickle.loads(content["content"])
        if not isinstance(content, tuple) or len(content) != 3 or not callable(content[0]):
            raise SubjectError(
                "pickle: takes a file with a model, its arguments and its named arguments.",
                f"{path} holds a {type(content).__name__}.",
                "Call breakeven.study(model, inputs), which writes it.",
            )
        model, args, kwargs = content
        return model, Inputs(tuple(args), dict(kwargs))

    return from_example(spec, build, about="a model of the calling program", facts=facts)
