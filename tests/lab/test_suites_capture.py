"""Every built-in subject can be captured whole, and is the same in every process."""

import copy
import functools
import json
import subprocess
import sys

import pytest
import torch
from torch.utils import _pytree as pytree

from breakeven.lab.subjects.subject import Inputs, Subject
from breakeven.lab.subjects.suites import compute, fusion, models

SUITES = {"fusion": fusion.SUBJECTS, "compute": compute.SUBJECTS, "models": models.SUBJECTS}
ALL = [(suite, name) for suite, subjects in SUITES.items() for name in subjects]

every = pytest.mark.parametrize(("suite", "name"), ALL, ids=[f"{s}-{n}" for s, n in ALL])


class AsModule(torch.nn.Module):
    """torch.export takes modules only."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@functools.cache
def small(suite: str, name: str) -> Subject:
    return SUITES[suite][name]("small")


def module(subject: Subject) -> torch.nn.Module:
    if isinstance(subject.model, torch.nn.Module):
        return copy.deepcopy(subject.model)
    return AsModule(subject.model)


def call(model, inputs: Inputs) -> list[torch.Tensor]:
    with torch.no_grad():
        return pytree.tree_leaves(model(*inputs.args))


def held(model) -> dict[str, torch.Tensor]:
    return model.state_dict() if isinstance(model, torch.nn.Module) else {}


def check(subject: Subject, captured, state: dict[str, torch.Tensor] | None = None) -> None:
    """Two calls answer as eager does and leave the same state behind."""
    eager = module(subject)
    for seed in (1, 2):
        fresh = subject.inputs({}, seed)
        for a, b in zip(call(captured, fresh), call(eager, fresh), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    state = held(captured) if state is None else state
    for key, value in held(eager).items():
        torch.testing.assert_close(state[key], value, rtol=1e-5, atol=1e-6)


def export(subject: Subject) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module(subject), subject.inputs({}, 0).args, strict=False)


@every
def test_export_gives_the_eager_answer(suite, name):
    subject = small(suite, name)
    check(subject, export(subject).module())


@every
def test_dynamo_captures_one_whole_graph(suite, name):
    subject = small(suite, name)
    torch._dynamo.reset()
    model = copy.deepcopy(subject.model)
    check(subject, torch.compile(model, fullgraph=True, backend="aot_eager"), held(model))


def test_long_chain_is_as_long_as_it_says():
    subject = small("fusion", "pointwise-chain")
    calls = [node for node in export(subject).graph.nodes if node.op == "call_function"]
    assert subject.about.startswith(f"{len(calls)} elementwise operations")


DIGESTS = """
import hashlib, json, sys, torch
from breakeven.lab.subjects.suites import compute, fusion, models
torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(int(sys.argv[1]))
found = {}
for suite in (fusion, compute, models):
    for name, factory in suite.SUBJECTS.items():
        subject = factory("small")
        tensors = list(subject.inputs({}, 11).tensors())
        if isinstance(subject.model, torch.nn.Module):
            tensors += subject.model.state_dict().values()
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(str((tensor.dtype, tensor.shape)).encode())
            digest.update(tensor.detach().numpy().tobytes())
        found[subject.name] = digest.hexdigest()
print(json.dumps(found))
"""


def test_two_processes_build_equal_models_and_inputs_whatever_their_threads():
    runs = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS, threads], capture_output=True, text=True, check=True
        )
        for threads in ("1", "2")
    ]
    one, two = (json.loads(run.stdout) for run in runs)
    assert len(one) == len(ALL)
    assert one == two
