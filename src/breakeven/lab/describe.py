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

from breakeven.errors import BreakevenError, UsageError
from breakeven.lab import lifeline
from breakeven.lab.compilers import registry
from breakeven.lab.job import described, grad_mode
from breakeven.lab.resume import fingerprint
from breakeven.lab.subjects import resolve, traces
from breakeven.lab.subjects.example import Known, known
from breakeven.lab.subjects.subject import Size, Subject

WALK_CALLS = 400
"""Longest walk through a trace."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The subject in question, and the compilers whose packages are to be imported."""

    subject: str
    options: resolve.Options
    compilers: list[str]
    threads: int
    shapes: str = ""
    suite: bool = False


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
    note: str = ""
    error: tuple[str, str, str] | None = None


def describe(question: Question) -> Facts:
    """Load the subject, call it once and say what it is.

    Raises:
        SubjectError: it does not load, or fails in eager PyTorch.
    """
    torch.set_num_threads(question.threads)
    subject = resolve.load(question.subject, question.options)
    inputs = subject.inputs({}, 1)
    with grad_mode(subject.mode):
        subject.model(*inputs.args, **inputs.kwargs)
    trace, note = _trace(subject, question)
    return Facts(
        about=subject.about,
        size=subject.default_size,
        dims=[dim.name for dim in subject.dims],
        trace=trace,
        note=note,
        padding=subject.padding.dim if subject.padding else "",
        mode=subject.mode,
        mutates=subject.mutates,
        onnx=subject.onnx is not None,
        fingerprint=fingerprint(question.subject, question.options),
        known=known(subject),
    )


def _trace(subject: Subject, question: Question) -> tuple[list[Size], str]:
    """The sizes to walk through, those asked for or the subject's own, and what to say of them."""
    if not question.shapes:
        trace = list(subject.trace)
        missing = bool(subject.dims) and not trace
        note = "It has no trace of sizes; --shapes gives one." if missing else ""
    else:
        try:
            asked = traces.parse(question.shapes, traces.default_dim(subject))
            trace, note = list(traces.fit(asked, subject)), ""
        except UsageError as error:
            if not question.suite:
                raise
            return [], str(error)
    if len(trace) > WALK_CALLS:
        note = f"The walk takes the first {WALK_CALLS} of {len(trace)} sizes."
    return trace[:WALK_CALLS], note


def main() -> None:
    """Entry of the process: a question on a file, the facts on a pipe."""
    lifeline.hold(int(sys.argv[3]))
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
