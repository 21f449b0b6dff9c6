"""What OpenVINO made of a model, as counts, bytes and a digest."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from breakeven.lab.records import Program

_ENDS = frozenset({"Parameter", "Result", "Constant", "Input", "Output", "Const"})
"""What is no operator: the ends of a graph and its constants."""

_FREE = frozenset({"Reshape", "Squeeze", "Unsqueeze", "ShapeOf"})
"""Operators that move no data: they give another shape to the same memory, or tell a shape."""

_PICKS_ROWS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "StridedSlice"})
"""Operators that read of their first operand as much as they write."""


def describe(
    model: Any, sizes: list[list[int]], runtime: Any, settings: list[str], detail: str
) -> Program:
    """Describe a converted model and the plugin's execution graph of it.

    Args:
        model: the openvino.Model as it was compiled.
        sizes: the shape of each input, for the bytes of a model with varying sizes.
        runtime: the compiled model's execution graph.
        settings: what changes how it runs and cannot be seen in it.
        detail: how the model was captured.
    """
    captured, emitted = model.get_ordered_ops(), runtime.get_ordered_ops()
    return Program(
        operators=sum(op.get_type_name() not in _ENDS for op in captured),
        kernels=sum(_layer(op) not in _ENDS for op in emitted),
        bytes_before=_bytes([(op.get_type_name(), op) for op in _at(model, sizes)]),
        bytes_after=_bytes([(_layer(op), op) for op in emitted]),
        digest=_digest(emitted, settings),
        cache="none",
        detail=detail,
    )


def passes_through(runtime: Any) -> bool:
    """Some output of an execution graph is an input, at most in another shape."""
    for port in runtime.outputs:
        op = port.get_node().input_value(0).get_node()
        while _layer(op) in _FREE:
            op = op.input_value(0).get_node()
        if _layer(op) == "Input":
            return True
    return False


def _at(model: Any, sizes: list[list[int]]) -> list[Any]:
    """The operators of the model with its inputs at `sizes`."""
    if all(port.get_partial_shape().is_static for port in model.inputs):
        return list(model.get_ordered_ops())
    fixed = model.clone()
    fixed.reshape(dict(enumerate(sizes)))
    return list(fixed.get_ordered_ops())


def _info(op: Any, name: str) -> str:
    info = op.get_rt_info()
    return str(info[name].astype(str)) if name in info else ""


def _layer(op: Any) -> str:
    return _info(op, "layerType") or str(op.get_type_name())


def _bytes(ops: list[tuple[str, Any]]) -> int | None:
    """Bytes that these operators read and write one by one; None where a shape is not known."""
    total = 0
    for kind, op in ops:
        if kind in _ENDS or kind in _FREE:
            continue
        written = [_size(port) for port in op.outputs()]
        read = [_size(port) for port in op.inputs()]
        if None in written or None in read:
            return None
        moved = sum(size or 0 for size in written)
        if kind in _PICKS_ROWS and read:
            read[0] = min(read[0] or 0, moved)
        total += moved + sum(size or 0 for size in read)
    return total


def _size(port: Any) -> int | None:
    shape = port.get_partial_shape()
    if not shape.is_static:
        return None
    bits = port.get_element_type().bitwidth
    return (int(math.prod(shape.to_shape())) * int(bits) + 7) // 8


def _digest(ops: list[Any], settings: list[str]) -> str:
    """16 hex digits from kind, primitive, precision, layout, shapes and wiring; not from names."""
    content = hashlib.sha256("\n".join(sorted(settings)).encode())
    number = {op.get_friendly_name(): index for index, op in enumerate(ops)}
    for op in ops:
        sources = [port.get_source_output() for port in op.inputs()]
        wiring = [(number[s.get_node().get_friendly_name()], s.get_index()) for s in sources]
        shapes = [str(port.get_partial_shape()) for port in op.outputs()]
        kinds = [_info(op, name) for name in ("primitiveType", "outputPrecisions", "outputLayouts")]
        content.update(repr((_layer(op), kinds, shapes, wiring)).encode())
    return content.hexdigest()[:16]
