"""The protocol behind which every compiler stands, eager PyTorch included."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from breakeven.lab.records import Phase, Policy, Program, Stage
from breakeven.lab.subjects.subject import Inputs, Subject


@dataclass(frozen=True)
class Technique:
    """One optimization that can be switched off by its name."""

    name: str
    stage: Stage
    what: str


@dataclass(frozen=True)
class Availability:
    """`version` where the compiler is here, else `reason` (what is missing and how to get it)."""

    version: str = ""
    reason: str = ""

    @property
    def here(self) -> bool:
        return not self.reason


class Compiled:
    """A callable with torch tensors in and out, and what its compiler tells of it.

    Subclasses override what they can answer; the defaults say "not exposed".
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call

    def compiles(self) -> int | None:
        """How many compiles this process has made so far, or None where there is no counter."""
        return None

    def reason(self) -> str:
        """Why the latest recompile happened, in the compiler's own words, one line."""
        return ""

    def phases(self) -> list[Phase]:
        """Phases of the latest compile, on the common map; they need not add up to its time."""
        return []

    def program(self) -> Program:
        """What was captured and emitted."""
        return Program()


class Compiler(abc.ABC):
    """Turns a subject into a callable.

    Instances are cheap, hold no state across `reset`, and import their package in `prepare`, not
    before: the module of a compiler must import where its package is missing.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    own_threads: ClassVar[bool] = False
    """It brings a thread pool of its own, so eager has to run in another process."""
    policies: ClassVar[tuple[Policy, ...]] = ("static", "automatic", "dynamic")
    """Policies that differ for it; a policy not named here is the same as "automatic"."""
    takes_onnx: ClassVar[bool] = False
    takes_training: ClassVar[bool] = False
    """It keeps mutation of inputs and parameters, so it can take a training step."""
    techniques: ClassVar[tuple[Technique, ...]] = ()
    own_toolchain: ClassVar[frozenset[str]] = frozenset()
    """Techniques without which the compiler needs other headers and probes than with them."""

    @abc.abstractmethod
    def available(self) -> Availability:
        """Is it here, and which version; looks at metadata and files, imports nothing heavy."""

    def prepare(self) -> None:
        """Import the compiler's own package (timed by the lab as a line of its own)."""

    @abc.abstractmethod
    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        """Compile `subject` for `example` under `policy` with the techniques `off` switched off.

        Work may be left to the first call (as Dynamo does); the lab times both. "bucket" arrives
        here as "static" with padded examples. The caller is in inference mode unless the subject
        trains.

        Raises:
            Unsupported: this compiler does not take this subject or policy.
            Exception: anything else is recorded as "cannot compile" with its message.
        """

    def warm_toolchain(self, off: tuple[str, ...] = ()) -> None:
        """Make what this compiler keeps on disk for every model: headers, probes of the machine.

        Called in a process of its own, whose folders become the template of the state
        "toolchain-warm". `off` matters only where it names one of `own_toolchain`.
        """

    def reset(self) -> None:
        """Forget everything compiled in this process, so that the next compile is a fresh one."""
