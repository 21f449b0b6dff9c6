"""Compilers with a known truth: each does one thing, and the lab has to say which.

They are named to the lab as `tests/planted.py:Class`. The subjects in `planted_subjects.py` spend a
known time per call, so that a planted compiler can make them exactly so much faster.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from breakeven.errors import Unsupported
from breakeven.lab.compilers.compiler import Availability, Compiled, Compiler
from breakeven.lab.records import Phase, Policy, Program
from breakeven.lab.subjects.subject import Inputs, Subject


def spin(seconds: float) -> None:
    """Spend processor time."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Planted(Compiler):
    """Identical to eager unless a subclass changes it."""

    name: ClassVar[str] = "planted"
    summary: ClassVar[str] = "a compiler with a known truth"
    speedup: ClassVar[float] = 1.0
    compile_seconds: ClassVar[float] = 0.0

    def available(self) -> Availability:
        return Availability(version="1")

    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        spin(self.compile_seconds)
        return Compiled(self.make(subject))

    def make(self, subject: Subject) -> Callable[..., Any]:
        model, speedup = subject.model, self.speedup

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_speedup"] = speedup
            return model(*args, **kwargs)

        return call


class Identical(Planted):
    name = "identical"


class AlsoIdentical(Planted):
    name = "also-identical"


class Twice(Planted):
    name, speedup = "twice", 2.0


class Tenth(Planted):
    name, speedup = "tenth", 1.1


class Slower(Planted):
    name, speedup = "slower", 0.8


class ThreeSeconds(Planted):
    """3 s of compiling, then exactly twice as fast."""

    name, speedup, compile_seconds = "three-seconds", 2.0, 3.0


class NoGain(Planted):
    """Compiles for half a second and gains nothing."""

    name, compile_seconds = "no-gain", 0.5


class ByPointer(Planted):
    name = "by-pointer"

    def make(self, subject: Subject) -> Callable[..., Any]:
        known: dict[int, Any] = {}

        def call(x: torch.Tensor) -> Any:
            if x.data_ptr() not in known:
                known[x.data_ptr()] = subject.model(x)
            return known[x.data_ptr()]

        return call


class ByContent(Planted):
    name = "by-content"

    def make(self, subject: Subject) -> Callable[..., Any]:
        known: dict[bytes, Any] = {}

        def call(x: torch.Tensor) -> Any:
            key = x.numpy().tobytes()
            if key not in known:
                known[key] = subject.model(x)
            return known[key].clone()

        return call


class Nothing(Planted):
    """Returns an answer of the right form that does not depend on the input."""

    name = "nothing"

    def make(self, subject: Subject) -> Callable[..., Any]:
        answer = None

        def call(x: torch.Tensor) -> Any:
            nonlocal answer
            if answer is None:
                answer = subject.model(x)
            return answer

        return call


class DefersToThread(Planted):
    """Returns at once; a thread fills the answer in later."""

    name = "defers-to-thread"

    def make(self, subject: Subject) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> Any:
            answer = torch.zeros_like(x)

            def fill() -> None:
                time.sleep(0.02)
                answer.copy_(subject.model(x))

            threading.Thread(target=fill, daemon=True).start()
            return answer

        return call


class Lazy(torch.Tensor):
    """A tensor that computes when it is first used."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def force(value: Any) -> Any:
            return value.work() if isinstance(value, Lazy) else value

        return func(*map(force, args), **(kwargs or {}))


class DefersToUse(Planted):
    name = "defers-to-use"

    def make(self, subject: Subject) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> Any:
            lazy = torch.empty_like(x).as_subclass(Lazy)
            lazy.work = lambda: subject.model(x)  # type: ignore[attr-defined]
            return lazy

        return call


class Wrong(Planted):
    """Off by a relative 10 times the bf16 error, at least 1e-2."""

    name = "wrong"

    def make(self, subject: Subject) -> Callable[..., Any]:
        return lambda x: subject.model(x) * 1.05


class WrongLater(Planted):
    """Right for the first 40 calls."""

    name = "wrong-later"

    def make(self, subject: Subject) -> Callable[..., Any]:
        count = 0

        def call(x: torch.Tensor) -> Any:
            nonlocal count
            count += 1
            return subject.model(x) * (1.05 if count > 40 else 1.0)

        return call


class Bfloat16(Planted):
    name = "bfloat16"

    def make(self, subject: Subject) -> Callable[..., Any]:
        return lambda x: subject.model(x).bfloat16().float()


class Recompiles(Planted):
    """Compiles on every call, and counts it."""

    name = "recompiles"

    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        count = 0

        class Counting(Compiled):
            def compiles(self) -> int:
                return count

        def call(x: torch.Tensor) -> Any:
            nonlocal count
            count += 1
            return subject.model(x)

        return Counting(call)


class Leaks(Planted):
    """Keeps 1 MB more with every call."""

    name = "leaks"

    def make(self, subject: Subject) -> Callable[..., Any]:
        kept: list[torch.Tensor] = []

        def call(x: torch.Tensor) -> Any:
            kept.append(torch.full((250_000,), 1.0))
            return subject.model(x)

        return call


class Crashes(Planted):
    name = "crashes"

    def make(self, subject: Subject) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> Any:
            os.kill(os.getpid(), 11)

        return call


class Exits(Planted):
    name = "exits"

    def make(self, subject: Subject) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> Any:
            raise SystemExit(3)

        return call


class Hangs(Planted):
    name = "hangs"

    def make(self, subject: Subject) -> Callable[..., Any]:
        return lambda x: time.sleep(3600)


class Hungry(Planted):
    """Takes memory until it is stopped."""

    name = "hungry"

    def make(self, subject: Subject) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> Any:
            kept = []
            while True:
                kept.append(torch.ones(25_000_000))

        return call


class CannotCompile(Planted):
    name = "cannot-compile"

    def make(self, subject: Subject) -> Callable[..., Any]:
        raise RuntimeError("no rule for this operation")


class Refuses(Planted):
    name = "refuses"

    def make(self, subject: Subject) -> Callable[..., Any]:
        raise Unsupported("It takes graphs of one node", "this has two", "Use another")


class Absent(Planted):
    name = "absent"

    def available(self) -> Availability:
        return Availability(reason="the package `absent` is not installed; pip install absent")


class Phased(Planted):
    """Phases of 0.5, 1 and 1.5 s, and 0.3 s that it does not tell of."""

    name = "phased"

    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        told = []
        for stage, seconds in (("frontend", 0.5), ("middle-end", 1.0), ("backend", 1.5)):
            start = time.perf_counter()
            spin(seconds)
            told.append(Phase(stage, stage, time.perf_counter() - start))  # type: ignore[arg-type]
        spin(0.3)

        class Told(Compiled):
            def phases(self) -> list[Phase]:
                return told

            def program(self) -> Program:
                return Program(operators=1, kernels=1, digest="phased")

        return Told(self.make(subject))
