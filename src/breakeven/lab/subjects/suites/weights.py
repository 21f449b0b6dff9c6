"""Parameters from a seed, so that two processes build bit-equal models."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)

_NORMALIZATIONS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d)


def build(make: Callable[[], M], seed: int = 0, mode: str = "inference") -> M:
    """`make()` under a generator of its own, with no neutral weights left, in f32.

    Freshly made networks multiply by ones and add zeros (normalization gains, biases, running
    statistics), which a compiler may remove although no trained network has them. So those are
    drawn anew: gains around 1, biases around 0, running means around 0, running variances in
    [0.6, 1.5), where the mean of 1 / variance is 1.02. The module is in eval mode unless `mode` is
    "training". The caller's generator and default dtype stay as they were.
    """
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = make()
            with torch.no_grad():
                _unsettle(module)
    finally:
        torch.set_default_dtype(dtype)
    return module.train(mode == "training")


def _unsettle(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, _NORMALIZATIONS) and part.weight is not None:
            part.weight.normal_(1.0, 0.1)
        if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None:
            part.running_mean.normal_(0.0, 0.1)
            assert part.running_var is not None
            part.running_var.uniform_(0.6, 1.5)
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(0.0, 0.02)


def keep_variance(module: nn.Module, gain: float = math.sqrt(2.0)) -> None:
    """Convolution and linear weights ~ N(0, gain² / fan-in): activations keep their size.

    gain √2 is that of He et al. 2015 (arXiv 1502.01852) for layers followed by a ReLU.
    """
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
                fan_in = part.weight[0].numel()
                if isinstance(part, nn.ConvTranspose2d):
                    fan_in = part.weight.shape[0]
                part.weight.normal_(0.0, gain / math.sqrt(fan_in))
