"""Subjects from ONNX files: `onnx:FILE`.

The baseline is the file itself, run by ONNX Runtime with every graph optimization off, torch
tensors in and out. Symbolic sizes are the dims, under the names that the file gives them; a size
without a name is called `<input>_<axis>`. Integers that index a table of the file stay within it;
inputs named like a mask are ones.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from breakeven.errors import SubjectError, UsageError
from breakeven.lab.subjects.example import Known
from breakeven.lab.subjects.source import guarded
from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.trial import try_call

_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(double)": torch.float64,
    "tensor(float16)": torch.float16,
    "tensor(int64)": torch.int64,
    "tensor(int32)": torch.int32,
    "tensor(int16)": torch.int16,
    "tensor(int8)": torch.int8,
    "tensor(uint8)": torch.uint8,
    "tensor(bool)": torch.bool,
}
# what a symbolic size of that name usually is, where the file does not tell
_USUAL = (("batch", 1), ("height", 224), ("width", 224), ("seq", 64), ("len", 64), ("token", 64))


class OnnxModel:
    """An ONNX file as a callable: torch tensors by position in, a tensor or a tuple out."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.inputs = self.session.get_inputs()
        self._names = [value.name for value in self.inputs]

    def __call__(self, *tensors: torch.Tensor) -> Any:
        feed = {name: t.numpy() for name, t in zip(self._names, tensors, strict=True)}
        outputs = tuple(torch.as_tensor(value) for value in self.session.run(None, feed))
        return outputs[0] if len(outputs) == 1 else outputs


def load(spec: str, threads: int = 1, facts: Known | None = None) -> Subject:
    """The subject of an ONNX file, run on `threads` threads.

    Raises:
        UsageError: no such file.
        SubjectError: onnxruntime is not installed or cannot load it, an input of a kind that has
            no torch tensor, or a run that fails.
    """
    path = Path(spec.removeprefix("onnx:")).expanduser()
    if not path.is_file():
        raise UsageError("onnx: takes an ONNX file.", f"There is no {path}.", "Check the path.")
    model = _opened(path, threads)
    for value in model.inputs:
        if value.type not in _DTYPES:
            raise SubjectError(
                "The inputs of an ONNX subject are tensors of torch's usual types.",
                f"{value.name} of {path.name} is {value.type}.",
                "Cast inside the model, or split it.",
            )
    shapes = [(value.name, _shape(value)) for value in model.inputs]
    tables = _tables(path)
    values = [(value.name, _DTYPES[value.type], tables.get(value.name)) for value in model.inputs]

    def make(size: Size, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        return Inputs(
            tuple(
                _draw(*value, [size[n] if isinstance(n, str) else n for n in shape], generator)
                for value, (_, shape) in zip(values, shapes, strict=True)
            )
        )

    names = dict.fromkeys(n for _, shape in shapes for n in shape if isinstance(n, str))
    dims = tuple(Dim(name, _usual(name)) for name in names)
    if facts is None:
        try_call(spec, model, make({dim.name: dim.default for dim in dims}, 0), "inference")
    return Subject(
        name=spec, model=model, make=make, dims=dims, onnx=path, about=f"ONNX file {path.name}"
    )


def _opened(path: Path, threads: int) -> OnnxModel:
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        raise SubjectError(
            "Subjects named onnx: need the onnxruntime package, which runs the baseline.",
            "It is not installed here.",
            "Run `pip install 'breakeven[peers]'`.",
        ) from None
    advice = "Check it with onnx.checker.check_model, and keep its external data beside it."
    with guarded(f"ONNX Runtime has to load {path}.", advice):
        return OnnxModel(path, threads)


def _shape(value: Any) -> list[int | str]:
    """Sizes of an input; a symbolic one is its name, as an identifier."""
    sizes: list[int | str] = []
    for axis, size in enumerate(value.shape):
        if isinstance(size, int) and size >= 0:
            sizes.append(size)
            continue
        text = "".join(c if c.isalnum() else "_" for c in size or "") if size else ""
        name = text if text.isidentifier() else f"{value.name}_{axis}"
        sizes.append("".join(c if c.isalnum() else "_" for c in name))
    return sizes


def _usual(name: str) -> int:
    low = name.lower()
    if low in ("n", "b", "bs"):
        return 1
    return next((size for word, size in _USUAL if word in low), 1 if low.endswith("_0") else 16)


def _tables(path: Path) -> dict[str, int]:
    """For each input that indexes a constant table (an embedding): how many rows that has.

    Needs the onnx package; without it, nothing is known.
    """
    try:
        import onnx
    except ImportError:
        return {}
    with contextlib.suppress(Exception):  # a file that ONNX Runtime loads is measured all the same
        graph = onnx.load(str(path), load_external_data=False).graph
        rows = {table.name: table.dims[0] for table in graph.initializer if len(table.dims)}
        same: dict[str, str] = {}
        found: dict[str, int] = {}
        for node in graph.node:
            if node.op_type in ("Cast", "Identity") and node.input:
                same[node.output[0]] = same.get(node.input[0], node.input[0])
            if node.op_type == "Gather" and node.input[0] in rows:
                source = same.get(node.input[1], node.input[1])
                found[source] = min(rows[node.input[0]], found.get(source, 1 << 62))
        return found
    return {}


def _draw(
    name: str,
    dtype: torch.dtype,
    rows: int | None,
    shape: Sequence[int],
    generator: torch.Generator,
) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.rand(tuple(shape), generator=generator) < 0.5
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), generator=generator).to(dtype)
    if rows is not None:
        drawn = torch.randint(0, rows, tuple(shape), generator=generator)
        return drawn.clamp_(max=torch.iinfo(dtype).max).to(dtype)
    if "mask" in name.lower():
        return torch.ones(tuple(shape), dtype=dtype)
    if "position" in name.lower() and shape:
        line = torch.arange(shape[-1]).expand(tuple(shape))
        return line.to(dtype).contiguous()
    top = 256 if dtype is torch.uint8 and math.prod(shape) > 1 else 2
    return torch.randint(0, top, tuple(shape), generator=generator).to(dtype)
