"""Every error a user can meet: what was required, what was found, what to do.

`str(error)` is always three sentences, so a message can be printed as it stands. Each class carries
the exit code that the command line uses for it.
"""

from __future__ import annotations


class BreakevenError(Exception):
    """A failure told in three sentences.

    Args:
        required: what was needed, as a full sentence.
        found: what was there instead, and where, as a full sentence.
        advice: what to do now, as a full sentence.
    """

    exit_code = 3

    def __init__(self, required: str, found: str, advice: str) -> None:
        super().__init__(f"{_sentence(required)} {_sentence(found)} {_sentence(advice)}")
        self.required, self.found, self.advice = required, found, advice


class UsageError(BreakevenError):
    """The request itself cannot be understood: unknown names, missing files, bad options."""

    exit_code = 2


class SubjectError(BreakevenError):
    """The model or its inputs cannot be loaded or do not run in eager PyTorch."""

    exit_code = 2


class StoreError(BreakevenError):
    """The folder of a study cannot be read or written."""

    exit_code = 3


class NothingMeasured(BreakevenError):
    """The study ended without one usable number."""

    exit_code = 3


class Unsupported(BreakevenError):
    """A compiler does not take this subject, policy or technique: an outcome, not a fault."""


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else text + "."
