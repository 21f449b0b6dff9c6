"""What the study tells a measuring process, and what it hears besides records."""

from __future__ import annotations

import contextlib

import msgspec
import torch

from breakeven.lab import records
from breakeven.lab.records import AnyRecord, Cell
from breakeven.lab.subjects.resolve import Options
from breakeven.lab.subjects.subject import Size


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One cell to run, and how long to dwell on each part of it.

    `trace` is walked call by call where the cell's work names "shapes"; `sizes` then get a steady
    state of their own. `pairs` and `seconds` bound one alternation of eager and compiled.
    """

    cell: Cell
    attempt: int
    options: Options
    trace: list[Size] = []
    sizes: list[Size] = []
    pairs: int = 12
    seconds: float = 4.0
    size_seconds: float = 1.0
    transient: int = 8
    replay_calls: int = 0
    replay_seconds: float = 0.0
    sweep: list[int] = []  # thread counts at which eager is tried against its own count


class Stage(msgspec.Struct, frozen=True, tag_field="kind", tag="stage"):
    """The worker enters a part of its cell; the study times it out and watches memory by it."""

    name: str


Message = AnyRecord | Stage

encode = records.encode
decode_message = msgspec.json.Decoder(Message, strict=False).decode
decode_job = msgspec.json.Decoder(Job).decode


def grad_mode(mode: str) -> contextlib.AbstractContextManager[object]:
    """Inference mode for inference; training subjects keep their gradients."""
    return contextlib.nullcontext() if mode == "training" else torch.inference_mode()


def described(error: BaseException) -> str:
    """An exception as one line of at most 400 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]
