"""The code that a verdict gives to paste runs, at the sizes its policy is for, and is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.lab.snippets import snippet

POLICIES = ("static", "automatic", "dynamic", "bucket")
PEERS = {"onnxruntime": "onnxscript", "openvino": "openvino", "openvino-default": "openvino"}
LENGTHS = (20, 5, 33, 16)


class Encoder(torch.nn.Module):
    """Token states with the mean of what the mask keeps; ids and mask int64 [batch, length]."""

    def __init__(self, pooled: bool = False) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 32)
        self.pooled = pooled

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = mask.unsqueeze(-1).float()
        states = self.table(ids)
        mean = (states * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True)
        return mean.squeeze(1) if self.pooled else torch.tanh(states + mean)


def inputs(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(length)
    ids = torch.randint(1, 50, (2, length), generator=draw)
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, max(1, length // 2) :] = 0
    return ids, mask


@pytest.fixture(autouse=True)
def settings_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Snippets write files and set options of torch; neither may outlive the test."""
    import torch._dynamo.config
    import torch._inductor.config

    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    with torch._dynamo.config.patch({}), torch._inductor.config.patch({}):
        saved = torch._dynamo.config.recompile_limit, torch._inductor.config.freezing
        torch._dynamo.reset()
        yield
        torch._dynamo.config.recompile_limit, torch._inductor.config.freezing = saved
    torch._dynamo.reset()
    torch.set_num_threads(threads)


def ran(code: str, model: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    names: dict[str, Any] = {"model": model, "inputs": example}
    exec(compile(code, "snippet", "exec"), names)
    return names


def close(actual: torch.Tensor, expected: torch.Tensor, compiler: str) -> None:
    reduced = compiler.endswith("-default")
    torch.testing.assert_close(
        actual, expected, rtol=2e-2 if reduced else 1e-4, atol=1e-2 if reduced else 1e-5
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "compiler",
    ["eager", "inductor", "inductor-freezing", "torchscript", "onnxruntime", "openvino",
     "openvino-default"],
)  # fmt: skip
def test_the_snippet_serves_every_length(compiler: str, policy: str) -> None:
    if compiler in PEERS:
        pytest.importorskip(PEERS[compiler])
        pytest.importorskip(compiler.removesuffix("-default"))
    model = Encoder()
    names = ran(snippet(compiler, policy, sizes={"length": 33}), model, inputs(LENGTHS[0]))
    call = names["bucketed"] if policy == "bucket" and compiler != "eager" else names["fast"]
    close(names["output"], model(*inputs(LENGTHS[0])), compiler)
    with torch.inference_mode():
        for length in LENGTHS:
            close(call(*inputs(length)), model(*inputs(length)), compiler)


@pytest.mark.filterwarnings("ignore")
def test_bucket_and_pad_calls_with_powers_of_two_alone() -> None:
    met = []

    class Noting(Encoder):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            met.append(ids.shape[1])
            assert mask[0].sum() <= ids.shape[1]
            return super().forward(ids, mask)

    code = snippet("torchscript", "bucket", sizes={"length": 33})
    names = ran(code, Encoder(), inputs(20))
    noting = Noting()
    names["fast"] = noting
    for length in range(1, 70):
        expected = Encoder.forward(noting, *inputs(length))
        torch.testing.assert_close(names["bucketed"](*inputs(length)), expected)
    assert set(met) == {16, 32, 64, 128}
    met.clear()
    names["bucketed"](*inputs(70), longest=100), names["bucketed"](*inputs(120), longest=100)
    assert met == [100, 120]


def test_bucket_and_pad_leaves_a_pooled_answer_whole() -> None:
    code = snippet("torchscript", "bucket", sizes={"length": 33})
    names = ran(code, Encoder(), inputs(20))
    names["fast"] = model = Encoder(pooled=True)
    torch.testing.assert_close(names["bucketed"](*inputs(20), strip=False), model(*inputs(20)))


def test_bucket_and_pad_takes_another_axis_and_several_outputs() -> None:
    names = ran(snippet("torchscript", "bucket"), Encoder(), inputs(20))
    names["fast"] = lambda values, mask: (values * 2, mask + 1)
    values, mask = torch.rand(3, 7, 5), torch.ones(3, 7)
    doubled, plus = names["bucketed"](values, mask, axis=1)
    assert torch.equal(doubled, values * 2) and torch.equal(plus, mask + 1)


def test_threads_are_set_where_they_are_the_advice() -> None:
    ran(snippet("eager", threads=1), Encoder(), inputs(5))
    assert torch.get_num_threads() == 1


def test_code_fits_a_terminal_of_80_columns() -> None:
    for compiler in ("eager", "inductor", "inductor-freezing-max-autotune", "torchscript", *PEERS):
        for policy in POLICIES:
            for sizes in ({}, {"length": 33}):
                code = snippet(compiler, policy, threads=1, sizes=sizes)
                assert [line for line in code.splitlines() if len(line) > 76] == []


def test_an_unknown_compiler_has_no_snippet() -> None:
    assert snippet("my_compiler.py:Mine") == ""
