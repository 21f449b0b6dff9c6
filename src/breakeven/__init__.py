"""Breakeven: after how many calls does compiling your PyTorch model pay?

`breakeven.study` measures compilers on a model. torch is imported when it is first used.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["Study", "study"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from breakeven.lab import api

        return getattr(api, name)
    raise AttributeError(f"module 'breakeven' has no attribute {name!r}")
