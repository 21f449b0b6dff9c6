"""Eager PyTorch: the baseline of every comparison."""

from __future__ import annotations

from importlib import metadata

from breakeven.errors import Unsupported
from breakeven.lab.compilers.compiler import Availability, Compiled, Compiler
from breakeven.lab.compilers.graph_traffic import captured
from breakeven.lab.records import Policy, Program
from breakeven.lab.subjects.subject import Inputs, Subject


class Eager(Compiler):
    """The model as it is: one kernel per operator, nothing compiled."""

    name = "eager"
    summary = "PyTorch as it is, one kernel per operator: the baseline"
    policies = ("automatic",)
    takes_onnx = True
    takes_training = True

    def available(self) -> Availability:
        """Torch is a requirement of the package, so it is here."""
        return Availability(version=metadata.version("torch"))

    def compile(
        self, subject: Subject, example: Inputs, policy: Policy, off: tuple[str, ...]
    ) -> Compiled:
        """The model itself, whatever the policy.

        Raises:
            Unsupported: a technique is to be switched off.
        """
        del policy
        if off:
            raise Unsupported(
                "Eager PyTorch has no techniques to switch off",
                f"{', '.join(off)} was to be switched off",
                "Study techniques on a compiler",
            )
        return _Eager(subject, example)


class _Eager(Compiled):
    def __init__(self, subject: Subject, example: Inputs) -> None:
        super().__init__(subject.model)
        self._subject, self._example = subject, example

    def compiles(self) -> int:
        """Always 0: nothing compiles."""
        return 0

    def program(self) -> Program:
        """Every operator is a kernel and reads and writes its own operands."""
        traffic = captured(self._subject, self._example)
        if traffic is None:
            return Program()
        return Program(
            operators=traffic.operators,
            kernels=traffic.operators,
            bytes_before=traffic.bytes_before,
            bytes_after=traffic.bytes_before,
            flops=traffic.flops,
        )
