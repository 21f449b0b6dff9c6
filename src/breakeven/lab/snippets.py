"""Code to paste for each compiler and shape policy; `model` and `inputs` (a tuple) are the user's.

Every snippet ends with `fast`, a callable that takes and returns torch tensors.
"""

from __future__ import annotations

from collections.abc import Mapping

_DYNAMIC = {"static": "dynamic=False", "bucket": "dynamic=False", "dynamic": "dynamic=True"}

_INDUCTOR = """\
import torch
{config}
model.eval()
fast = torch.compile(model{arguments})

with torch.inference_mode():
    output = fast(*inputs)  # the first call compiles"""

_TORCHSCRIPT = """\
import torch

model.eval()
with torch.inference_mode():
    fast = torch.jit.trace(model, inputs, check_trace=False)
    fast = torch.jit.freeze(fast)
    fast(*inputs), fast(*inputs)  # the first two calls profile and optimize
    output = fast(*inputs)"""

_ONNXRUNTIME = """\
# pip install onnxruntime onnx onnxscript
import onnxruntime
import torch

model.eval()
{shapes}program = torch.onnx.export(model, inputs, dynamo=True{dynamic})
program.save("model.onnx")
session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
names = [value.name for value in session.get_inputs()]

def fast(*inputs):
    arrays = (value.numpy(force=True) for value in inputs)
    results = session.run(None, dict(zip(names, arrays)))
    outputs = tuple(torch.from_numpy(result) for result in results)
    return outputs[0] if len(outputs) == 1 else outputs

output = fast(*inputs)"""

_OPENVINO = """\
# pip install openvino
import openvino
import torch

model.eval()
{shapes}program = openvino.convert_model(model, example_input=inputs{pinned})
compiled = openvino.Core().compile_model(program, "CPU"{precision})

def fast(*inputs):
    results = compiled([value.numpy(force=True) for value in inputs]).to_tuple()
    outputs = tuple(torch.from_numpy(result) for result in results)
    return outputs[0] if len(outputs) == 1 else outputs

output = fast(*inputs)"""

_BREAKEVEN = """\
import breakeven

model.eval()
fast = breakeven.compile(model, inputs{arguments})
output = fast(*inputs)"""

_EAGER = """\
import torch
{threads}
model.eval()
fast = model  # no compiler

with torch.inference_mode():
    output = fast(*inputs)"""

_BUCKET = """

# Bucket-and-pad: pad the varying dimension up to one of a few lengths, mask included, and strip
# the result, so that only {buckets} sizes are ever compiled.
import bisect

buckets = {lengths}

def bucket(length):
    return buckets[bisect.bisect_left(buckets, length)]"""


def snippet(
    compiler: str,
    policy: str = "automatic",
    *,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    buckets: tuple[int, ...] = (),
) -> str:
    """Working code for `compiler` under `policy`; empty for a compiler that is not known here.

    Args:
        compiler: its name in the lab.
        policy: "static", "automatic", "dynamic" or "bucket".
        threads: torch's thread count to set first, where it is part of the advice.
        sizes: the dimensions that vary; without any, nothing is made dynamic.
        buckets: the lengths to pad to, for the policy "bucket".
    """
    code = _code(compiler, policy, bool(sizes), threads)
    if code and policy == "bucket":
        lengths = list(buckets) or [16, 32, 64, 128, 256, 512]
        code += _BUCKET.format(buckets=len(lengths), lengths=lengths)
    return code


def _code(compiler: str, policy: str, varies: bool, threads: int | None) -> str:
    if compiler == "eager":
        line = f"\ntorch.set_num_threads({threads})" if threads else ""
        return _EAGER.format(threads=line)
    if compiler.startswith("inductor"):
        return _inductor(compiler, policy)
    if compiler == "torchscript":
        return _TORCHSCRIPT
    if compiler == "onnxruntime":
        return _onnxruntime(policy, varies)
    if compiler in ("openvino", "openvino-default"):
        return _openvino(compiler, policy)
    if compiler == "breakeven":
        arguments = ", dynamic=False" if policy in ("static", "bucket") else ""
        return _BREAKEVEN.format(arguments=arguments)
    if compiler == "breakeven-dynamo":
        return _INDUCTOR.format(config="", arguments=_arguments(policy, 'backend="breakeven"'))
    return ""


def _inductor(compiler: str, policy: str) -> str:
    config = ""
    if "freezing" in compiler:
        config = "import torch._inductor.config\n\ntorch._inductor.config.freezing = True"
    mode = ['mode="max-autotune-no-cudagraphs"'] if compiler.endswith("max-autotune") else []
    return _INDUCTOR.format(config=config, arguments=_arguments(policy, *mode))


def _arguments(policy: str, *others: str) -> str:
    """The keyword arguments of `torch.compile`; automatic is its own default."""
    wanted = [*others, *([_DYNAMIC[policy]] if policy in _DYNAMIC else [])]
    return "".join(f", {argument}" for argument in wanted)


def _onnxruntime(policy: str, varies: bool) -> str:
    if policy in ("static", "bucket") or not varies:
        return _ONNXRUNTIME.format(shapes="", dynamic="")
    shapes = (
        "# every axis may vary; torch.export tells where the model pins one\n"
        "axes = tuple({axis: torch.export.Dim.AUTO for axis in range(value.dim())} "
        "for value in inputs)\n"
    )
    return _ONNXRUNTIME.format(shapes=shapes, dynamic=", dynamic_shapes=axes")


def _openvino(compiler: str, policy: str) -> str:
    precision = ', {"INFERENCE_PRECISION_HINT": "f32"}' if compiler == "openvino" else ""
    if policy not in ("static", "bucket"):
        return _OPENVINO.format(precision=precision, shapes="", pinned="")
    shapes = "shapes = [list(value.shape) for value in inputs]\n"
    return _OPENVINO.format(precision=precision, shapes=shapes, pinned=", input=shapes")
