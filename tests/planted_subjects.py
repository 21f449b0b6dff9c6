"""Subjects that spend a known time per call and give an answer that depends on every value."""

from __future__ import annotations

import time

import torch


class Spin(torch.nn.Module):
    """Multiplies and adds, then spins until `seconds` have passed since the call began."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor, _speedup: float = 1.0) -> torch.Tensor:
        end = time.perf_counter() + self.seconds / _speedup
        answer = x * 1.5 + 0.25
        while time.perf_counter() < end:
            pass
        return answer


def two_milliseconds() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    return Spin(0.002), (torch.randn(8, 16),)


def five_milliseconds() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    return Spin(0.005), (torch.randn(8, 16),)
