"""Code to paste for each compiler and shape policy; `model` and `inputs` (a tuple) are the user's.

Every snippet makes `fast`, a callable that takes and returns torch tensors; under bucket-and-pad
`bucketed` around it is the one to call.
"""

from __future__ import annotations

from collections.abc import Mapping

_DYNAMIC = {"static": "dynamic=False", "bucket": "dynamic=False", "dynamic": "dynamic=True"}

_INDUCTOR = """\
import torch
{config}
model.eval()
fast = torch.compile({arguments})
{bucket}
with torch.inference_mode():
    output = {call}(*inputs)  # the first call compiles"""

_TORCHSCRIPT = """\
import torch

model.eval()
with torch.inference_mode():
    fast = torch.jit.trace(model, inputs, check_trace=False)
    fast = torch.jit.freeze(fast)
    fast(*inputs), fast(*inputs)  # the first two calls profile and optimize
{bucket}
with torch.inference_mode():
    output = {call}(*inputs)"""

_ONNXRUNTIME = """\
# pip install onnxruntime onnx onnxscript
import onnxruntime
import torch

model.eval()
{shapes}program = torch.onnx.export({arguments})
program.save("model.onnx")
providers = ["CPUExecutionProvider"]
session = onnxruntime.InferenceSession("model.onnx", providers=providers)
names = [value.name for value in session.get_inputs()]

def fast(*inputs):
    arrays = (value.numpy(force=True) for value in inputs)
    results = session.run(None, dict(zip(names, arrays)))
    outputs = tuple(torch.from_numpy(result) for result in results)
    return outputs[0] if len(outputs) == 1 else outputs

output = fast(*inputs)"""

_ONNXRUNTIME_BY_SHAPE = """\
# pip install onnxruntime onnx onnxscript
import onnxruntime
import torch

model.eval()
providers = ["CPUExecutionProvider"]
sessions = {{}}  # one for each shape

def fast(*inputs):
    shapes = tuple(value.shape for value in inputs)
    if shapes not in sessions:
        program = torch.onnx.export(model, inputs, dynamo=True)
        sessions[shapes] = onnxruntime.InferenceSession(
            program.model_proto.SerializeToString(), providers=providers
        )
    names = (value.name for value in sessions[shapes].get_inputs())
    arrays = (value.numpy(force=True) for value in inputs)
    results = sessions[shapes].run(None, dict(zip(names, arrays)))
    outputs = tuple(torch.from_numpy(result) for result in results)
    return outputs[0] if len(outputs) == 1 else outputs
{bucket}
output = {call}(*inputs)  # the first call at a shape compiles"""

_OPENVINO = """\
# pip install openvino
import openvino
import torch

model.eval()
{shapes}program = openvino.convert_model(model, example_input=inputs{pinned})
core = openvino.Core()
{options}compiled = core.compile_model(program, "CPU"{given})

def fast(*inputs):
    arrays = [value.numpy(force=True) for value in inputs]
    results = compiled(arrays).to_tuple()
    outputs = tuple(torch.from_numpy(result) for result in results)
    return outputs[0] if len(outputs) == 1 else outputs

output = fast(*inputs)"""

_OPENVINO_BY_SHAPE = """\
# pip install openvino
import openvino
import torch

model.eval()
core = openvino.Core()
{options}compiled = {{}}  # one for each shape

def fast(*inputs):
    shapes = tuple(value.shape for value in inputs)
    if shapes not in compiled:
        pinned = [list(shape) for shape in shapes]
        program = openvino.convert_model(
            model, example_input=inputs, input=pinned
        )
        compiled[shapes] = core.compile_model(program, "CPU"{given})
    arrays = [value.numpy(force=True) for value in inputs]
    results = compiled[shapes](arrays).to_tuple()
    outputs = tuple(torch.from_numpy(result) for result in results)
    return outputs[0] if len(outputs) == 1 else outputs
{bucket}
output = {call}(*inputs)  # the first call at a shape compiles"""

_F32 = {
    "options": 'options = {"INFERENCE_PRECISION_HINT": "f32"}\n',
    "given": ", options",
}

_EAGER = """\
import torch
{threads}
model.eval()
fast = model  # no compiler

with torch.inference_mode():
    output = fast(*inputs)"""

_BUCKET = """
# Pads every input along `axis` to the next power of two, with zeros, so
# that its mask leaves out what was added, and strips the answer: only a few
# sizes are ever compiled. `longest` is the most that the model takes;
# strip=False is for an answer without that axis, as a pooled one.
def bucketed(*inputs, axis=1, longest=None, strip=True):
    length = inputs[0].shape[axis]
    bucket = max(16, 1 << (length - 1).bit_length())
    bucket = max(length, min(bucket, longest or bucket))
    room = [0, bucket - length]
    pads = ([0, 0] * (value.dim() - 1 - axis) + room for value in inputs)
    output = fast(*map(torch.nn.functional.pad, inputs, pads))
    if not strip:
        return output
    if isinstance(output, tuple):
        return tuple(value.narrow(axis, 0, length) for value in output)
    return output.narrow(axis, 0, length)
"""


def snippet(
    compiler: str,
    policy: str = "automatic",
    *,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> str:
    """Working code for `compiler` under `policy`; empty for a compiler that is not known here.

    Args:
        compiler: its name in the lab.
        policy: "static", "automatic", "dynamic" or "bucket".
        threads: torch's thread count to set first, where it is part of the advice.
        sizes: the dimensions that vary; without any, nothing is made dynamic.
    """
    padded = policy == "bucket"
    rest = {"bucket": _BUCKET if padded else "", "call": "bucketed" if padded else "fast"}
    by_shape = padded or (policy == "static" and bool(sizes))
    if compiler == "eager":
        line = f"\ntorch.set_num_threads({threads})" if threads else ""
        return _EAGER.format(threads=line)
    if compiler.startswith("inductor"):
        return _inductor(compiler, policy, sizes, rest)
    if compiler == "torchscript":
        return _TORCHSCRIPT.format(**rest)
    if compiler == "onnxruntime":
        return _ONNXRUNTIME_BY_SHAPE.format(**rest) if by_shape else _onnxruntime(policy, sizes)
    if compiler in ("openvino", "openvino-default"):
        precision = _F32 if compiler == "openvino" else {"options": "", "given": ""}
        if by_shape:
            return _OPENVINO_BY_SHAPE.format(**precision, **rest)
        return _openvino(precision, policy)
    return ""


def _inductor(
    compiler: str, policy: str, sizes: Mapping[str, int] | None, rest: Mapping[str, str]
) -> str:
    modules, settings = [], []
    if policy == "static" and sizes:
        modules.append("import torch._dynamo.config")
        settings.append("torch._dynamo.config.recompile_limit = 1_000  # one compile a shape")
    if "freezing" in compiler:
        modules.append("import torch._inductor.config")
        settings.append("torch._inductor.config.freezing = True")
    config = "\n".join([*modules, *([""] if settings else []), *settings])
    mode = ['mode="max-autotune-no-cudagraphs"'] if compiler.endswith("max-autotune") else []
    # automatic is the default of torch.compile
    arguments = ", ".join(["model", *mode, *([_DYNAMIC[policy]] if policy in _DYNAMIC else [])])
    if len(arguments) > 50:
        arguments = f"\n    {arguments}\n"
    return _INDUCTOR.format(config=config, arguments=arguments, **rest)


def _onnxruntime(policy: str, sizes: Mapping[str, int] | None) -> str:
    arguments = "model, inputs, dynamo=True"
    if policy == "static" or not sizes:
        return _ONNXRUNTIME.format(shapes="", arguments=arguments)
    shapes = (
        "any_length = torch.export.Dim.AUTO  # or a number, where the model pins one\n"
        "axes = tuple(\n"
        "    {axis: any_length for axis in range(value.dim())} for value in inputs\n"
        ")\n"
    )
    arguments = f"\n    {arguments}, dynamic_shapes=axes\n"
    return _ONNXRUNTIME.format(shapes=shapes, arguments=arguments)


def _openvino(precision: Mapping[str, str], policy: str) -> str:
    if policy != "static":
        return _OPENVINO.format(**precision, shapes="", pinned="")
    shapes = "shapes = [list(value.shape) for value in inputs]\n"
    return _OPENVINO.format(**precision, shapes=shapes, pinned=", input=shapes")
