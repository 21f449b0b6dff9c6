"""A training subject: one step of Adam over many tensors, changing its state in place."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from breakeven.lab.subjects.subject import Dim, Inputs, Size, Subject
from breakeven.lab.subjects.suites.draw import Draw
from breakeven.lab.subjects.suites.scales import Factory, pick, title
from breakeven.lab.subjects.suites.weights import build

Shape = tuple[int, ...]


class AdamStep(nn.Module):
    """One step of Adam (Kingma and Ba 2015, arXiv 1412.6980, algorithm 1), in torch operations.

    Parameters, both moments and the step count are buffers, so `state_dict` holds all that a call
    changes. A call takes one gradient a parameter, [microbatches, *shape], and averages over the
    first axis as gradient accumulation does. It returns the RMS of the update of each tensor,
    [tensors], which depends on every value that was written.

    1 - beta**step is computed as -expm1(step * log(beta)), in f32 at least: written out, it loses
    most of its digits in f32 and is zero in bf16 at the first step.
    """

    def __init__(
        self,
        shapes: list[Shape],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.lr, self.betas, self.eps = lr, betas, eps
        self.count = len(shapes)
        self.register_buffer("step", torch.tensor(0, dtype=torch.int64))
        for index, shape in enumerate(shapes):
            self.register_buffer(f"parameter_{index}", 0.05 * torch.randn(shape))
            self.register_buffer(f"first_{index}", 0.01 * torch.randn(shape))
            self.register_buffer(f"second_{index}", 1e-4 * (torch.rand(shape) + 0.5))

    def forward(self, *gradients: Tensor) -> Tensor:
        step: Tensor = self.get_buffer("step")
        step.add_(1)
        kind = torch.promote_types(gradients[0].dtype, torch.float32)
        first_bias = -torch.expm1(step.to(kind) * math.log(self.betas[0]))
        second_bias = -torch.expm1(step.to(kind) * math.log(self.betas[1]))
        sizes = [
            self._update(index, gradient.mean(0), first_bias, second_bias.sqrt())
            for index, gradient in enumerate(gradients)
        ]
        return torch.stack(sizes)

    def _update(
        self, index: int, gradient: Tensor, first_bias: Tensor, second_root: Tensor
    ) -> Tensor:
        first = self.get_buffer(f"first_{index}")
        second = self.get_buffer(f"second_{index}")
        beta1, beta2 = self.betas
        first.mul_(beta1).add_(gradient * (1.0 - beta1))
        second.mul_(beta2).add_(gradient * gradient * (1.0 - beta2))
        update = first / (second.sqrt() / second_root + self.eps) * (self.lr / first_bias)
        self.get_buffer(f"parameter_{index}").sub_(update)
        return update.square().mean().sqrt()


def adam_step(scale: str) -> Subject:
    """Gradients [microbatches, *shape] of weights [width, width] and biases [width] in turn."""
    layers, width = pick(scale, small=(8, 16), medium=(12, 128), large=(16, 1024))
    shapes: list[Shape] = [shape for _ in range(layers) for shape in ((width, width), (width,))]

    def make(size: Size, seed: int) -> Inputs:
        draw = Draw(seed)
        count = size["microbatches"]
        return Inputs(tuple(draw.normal(count, *shape, std=0.01) for shape in shapes))

    return Subject(
        title("fusion", "adam-step", scale),
        build(lambda: AdamStep(shapes), mode="training"),
        make,
        (Dim("microbatches", 2, high=64),),
        mutates=True,
        mode="training",
        about=f"one step of Adam over {len(shapes)} tensors, gradients averaged first",
    )


ADAM: dict[str, Factory] = {"adam-step": adam_step}
