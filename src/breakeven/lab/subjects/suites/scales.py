"""The three sizes of every built-in subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from breakeven.errors import UsageError
from breakeven.lab.subjects.subject import Subject

SCALES = ("small", "medium", "large")

Factory = Callable[[str], Subject]
"""Takes a scale, builds the subject with its weights."""

T = TypeVar("T")


def pick(scale: str, *, small: T, medium: T, large: T) -> T:
    """The choice that belongs to `scale`.

    Small fits in the first caches (tens of KiB), medium is a few MiB, large lies above what one
    program really gets of the last-level cache.

    Raises:
        UsageError: `scale` is none of `SCALES`.
    """
    if scale not in SCALES:
        raise UsageError(
            f"The scale of a built-in subject is one of {', '.join(SCALES)}.",
            f"Found {scale!r}.",
            "Write one of the three, for example chain@medium.",
        )
    return {"small": small, "medium": medium, "large": large}[scale]


def title(suite: str, name: str, scale: str) -> str:
    """The full name of a built-in subject: `fusion/chain@medium`."""
    return f"{suite}/{name}@{scale}"
