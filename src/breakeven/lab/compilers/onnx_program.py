"""What ONNX Runtime made of a graph, as counts, bytes and a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_FREE = frozenset(
    {"Constant", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size"}
)
"""Operators that move no data: they give another shape to the same memory, or tell a shape."""

_PICKS_ROWS = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Operators that read of their first operand as much as they write."""

_INLINE = 1024  # bytes of an initializer up to which its value is part of the digest


def count_nodes(graph: Any) -> int:
    """Nodes of an ONNX graph, those of branches and loop bodies included, constants not."""
    total = 0
    for node in graph.node:
        total += node.op_type != "Constant"
        total += sum(count_nodes(inner) for inner in _subgraphs(node))
    return total


def digest(graph: Any, options: Iterable[str]) -> str:
    """16 hex digits that tell optimized graphs apart and do not depend on names.

    Args:
        graph: an ONNX GraphProto.
        options: settings that change how the graph runs and cannot be seen in it.
    """
    content = hashlib.sha256("\n".join(sorted(options)).encode())
    _feed(content, graph, {})
    return content.hexdigest()[:16]


def _feed(content: Any, graph: Any, outer: dict[str, int]) -> None:
    numbers = dict(outer)
    for value in graph.input:
        numbers[value.name] = len(numbers)
    initializers = {tensor.name: tensor for tensor in graph.initializer}

    def number(name: str) -> int:
        if name and name not in numbers:
            numbers[name] = len(numbers)
            if name in initializers:
                content.update(_constant(initializers[name]))
        return numbers.get(name, -1)

    for node in graph.node:
        content.update(f"{node.domain}:{node.op_type}".encode())
        content.update(repr([number(name) for name in [*node.input, *node.output]]).encode())
        for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
            if attribute.HasField("g"):
                _feed(content, attribute.g, numbers)
            else:
                content.update(attribute.SerializeToString(deterministic=True))
    content.update(repr([number(value.name) for value in graph.output]).encode())


def _constant(tensor: Any) -> bytes:
    shape = f"{tensor.data_type}{list(tensor.dims)}".encode()
    external = tensor.data_location != 0
    return shape if external or len(tensor.raw_data) > _INLINE else shape + tensor.raw_data


def _subgraphs(node: Any) -> list[Any]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def bytes_moved(profile: Path) -> int:
    """Bytes that the kernels of one profiled run read and wrote, from their own reports.

    Args:
        profile: a file that ONNX Runtime's profiler wrote during exactly one call.
    """
    total = 0
    for event in json.loads(profile.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            total += _moved(event["args"])
    return total


def _moved(kernel: dict[str, Any]) -> int:
    if kernel["op_name"] in _FREE:
        return 0
    written = int(kernel["output_size"])
    read = int(kernel["activation_size"]) + int(kernel["parameter_size"])
    return written + (min(read, written) if kernel["op_name"] in _PICKS_ROWS else read)
