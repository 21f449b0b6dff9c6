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
    """16 hex digits that tell optimized graphs apart and depend neither on names nor on order.

    Each node is named by its operator, its attributes and the names of its operands; the digest is
    that of all these names, sorted. (The order of ONNX Runtime's nodes differs between processes.)

    Args:
        graph: an ONNX GraphProto.
        options: settings that change how the graph runs and cannot be seen in it.
    """
    parts = [*sorted(options), *_fingerprint(graph, {})]
    return _hash("\n".join(parts))[:16]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _fingerprint(graph: Any, outer: dict[str, str]) -> list[str]:
    """The sorted names of a graph's nodes, then those of its outputs, in order."""
    values = dict(outer)
    for index, value in enumerate(graph.input):
        values[value.name] = f"input {index}"
    for tensor in graph.initializer:
        values[tensor.name] = _hash(_constant(tensor))
    nodes = []
    for node in graph.node:
        operands = [values.get(name, "") for name in node.input]
        attributes = sorted(node.attribute, key=lambda attribute: attribute.name)
        texts = [_attribute(attribute, values) for attribute in attributes]
        nodes.append(_hash(repr((node.domain, node.op_type, operands, texts))))
        for index, name in enumerate(node.output):
            values[name] = f"{nodes[-1]}.{index}"
    return [*sorted(nodes), *(values.get(value.name, "") for value in graph.output)]


def _attribute(attribute: Any, values: dict[str, str]) -> str:
    if attribute.HasField("g"):
        return str(attribute.name) + "\n".join(_fingerprint(attribute.g, values))
    return str(attribute.SerializeToString(deterministic=True).hex())


def _constant(tensor: Any) -> str:
    shape = f"{tensor.data_type}{list(tensor.dims)}"
    external = tensor.data_location != 0
    return shape if external or len(tensor.raw_data) > _INLINE else shape + tensor.raw_data.hex()


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
