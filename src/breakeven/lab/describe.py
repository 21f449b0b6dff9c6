"""What a study has to know of a subject before it plans: `python -m breakeven.lab.describe`.

It runs in a process of its own, which is also the discarded run that warms the page cache: the
subject is built and called once, and the packages of all asked compilers are imported.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import msgspec
import torch
import torch._dynamo
import torch.export

from breakeven.errors import BreakevenError
from breakeven.lab.compilers import registry
from breakeven.lab.job import described
from breakeven.lab.resume import fingerprint
from breakeven.lab.subjects import resolve
from breakeven.lab.subjects.example import Known, known
from breakeven.lab.subjects.subject import Size


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The subject in question, and the compilers whose packages are to be imported."""

    subject: str
    options: resolve.Options
    compilers: list[str]
    threads: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A subject as the planner sees it."""

    about: str = ""
    size: Size = {}
    dims: list[str] = []
    trace: list[Size] = []
    padding: str = ""
    mode: str = "inference"
    mutates: bool = False
    onnx: bool = False
    fingerprint: str = ""
    known: Known = Known()
    error: tuple[str, str, str] | None = None


def describe(question: Question) -> Facts:
    """Load the subject, call it once and say what it is.

    Raises:
        SubjectError: it does not load, or fails in eager PyTorch.
    """
    torch.set_num_threads(question.threads)
    subject = resolve.load(question.subject, question.options)
    inputs = subject.inputs({}, 1)
    with torch.no_grad():
        subject.model(*inputs.args, **inputs.kwargs)
    return Facts(
        about=subject.about,
        size=subject.default_size,
        dims=[dim.name for dim in subject.dims],
        trace=list(subject.trace),
        padding=subject.padding.dim if subject.padding else "",
        mode=subject.mode,
        mutates=subject.mutates,
        onnx=subject.onnx is not None,
        fingerprint=fingerprint(question.subject, question.options),
        known=known(subject),
    )


def main() -> None:
    """Entry of the process: a question on a file, the facts on a pipe."""
    question = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Question)
    try:
        facts = describe(question)
    except BreakevenError as error:
        facts = Facts(error=(error.required, error.found, error.advice))
    except BaseException as error:
        facts = Facts(
            error=(
                "A subject has to run in eager PyTorch before a compiler is tried on it",
                f"{question.subject} failed: {described(error)}",
                "Mend the model or its inputs and run the command again",
            )
        )
    os.write(int(sys.argv[2]), msgspec.json.encode(facts))
    for name in question.compilers:
        with contextlib.suppress(Exception):
            registry.get(name).prepare()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
