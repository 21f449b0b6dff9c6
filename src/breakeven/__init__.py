"""Breakeven: after how many calls does compiling your PyTorch model pay?"""

from __future__ import annotations

__version__ = "0.1.0"
