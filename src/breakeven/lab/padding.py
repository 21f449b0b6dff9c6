"""Bucket-and-pad: a size is served by the next power of two, and the padding taken off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from breakeven.errors import Unsupported
from breakeven.lab.compilers.compiler import Compiled
from breakeven.lab.subjects.subject import Inputs, Padding, Size, Subject

SMALLEST_BUCKET = 16


class Bucketed:
    """Pads the inputs of a subject to buckets.

    Raises:
        Unsupported: the subject has no dimension that can be padded under a mask.
    """

    def __init__(self, subject: Subject) -> None:
        if subject.padding is None:
            raise Unsupported(
                "Bucket-and-pad needs a subject with a dimension that a mask can cover",
                f"{subject.name} has none",
                "Leave the policy out, or give the subject a `Padding`",
            )
        self._padding: Padding = subject.padding
        self._axes = subject.axes
        highs = [dim.high for dim in subject.dims if dim.name == self._padding.dim]
        self._high = highs[0] if highs else None

    def length(self, inputs: Inputs) -> int:
        """The size of the padded dimension in these inputs."""
        for tensor, axes in zip(inputs.tensors(), self._axes, strict=True):
            for axis, name in axes.items():
                if name == self._padding.dim:
                    return int(tensor.shape[axis])
        raise ValueError(f"no input has the dimension {self._padding.dim}")

    def pad(self, inputs: Inputs) -> Inputs:
        """The inputs at their bucket."""
        return self._padding.pad(inputs, bucket(self.length(inputs), self._high))

    def wrap(self, compiled: Compiled) -> Callable[..., Any]:
        """A callable that pads, calls and strips, all of it part of the call."""

        def call(*args: Any, **kwargs: Any) -> Any:
            inputs = Inputs(args, kwargs)
            size: Size = {self._padding.dim: self.length(inputs)}
            padded = self._padding.pad(inputs, bucket(size[self._padding.dim], self._high))
            answer = compiled.call(*padded.args, **padded.kwargs)
            return self._padding.strip(answer, size)

        return call


def bucket(length: int, high: int | None = None) -> int:
    """The smallest power of two that holds `length`, at least `SMALLEST_BUCKET`, at most `high`.

    `high` is the longest that the subject takes; a length beyond it is its own bucket.
    """
    held = max(SMALLEST_BUCKET, 1 << (length - 1).bit_length())
    return held if high is None else max(length, min(held, high))
