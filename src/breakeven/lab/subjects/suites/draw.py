"""Input values from a seed: equal for equal seeds, different for different ones."""

from __future__ import annotations

import torch


class Draw:
    """A stream of random CPU tensors that does not touch torch's global generator.

    Floats are drawn in f32 whatever the default dtype is, so that a run in another dtype casts the
    very same values.
    """

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        """f32, normal."""
        values = torch.randn(shape, generator=self._generator, dtype=torch.float32)
        if std != 1.0:
            values.mul_(std)
        return values.add_(mean) if mean else values

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """f32, uniform in [low, high)."""
        values = torch.rand(shape, generator=self._generator, dtype=torch.float32)
        return values.mul_(high - low).add_(low)

    def integers(self, *shape: int, low: int, high: int) -> torch.Tensor:
        """int64, uniform in [low, high)."""
        return torch.randint(low, high, shape, generator=self._generator)

    def image_bytes(self, *shape: int) -> torch.Tensor:
        """uint8, uniform over all 256 values."""
        return torch.randint(0, 256, shape, generator=self._generator, dtype=torch.uint8)

    def keep_mask(self, *shape: int, rate: float) -> torch.Tensor:
        """bool, True at `rate`."""
        return torch.rand(shape, generator=self._generator, dtype=torch.float32) < rate
