"""Settings of Dynamo and Inductor that hold from `compile` until `reset`.

Dynamo compiles lazily, at the first call and at each call whose guards fail, so a setting has to
stand as long as the callable may be called. It stands for the process: a call pays nothing for it.
Some are read by Dynamo itself (freezing is), which an option given to `torch.compile` cannot reach.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from breakeven.lab.records import Policy

if TYPE_CHECKING:
    import torch._dynamo
    import torch._inductor.config
    import torch._inductor.utils

DYNAMIC: dict[Policy, bool | None] = {
    "static": False,
    "bucket": False,
    "automatic": None,
    "dynamic": True,
}
"""What `torch.compile(dynamic=...)` gets; no size is marked, since a mark makes a model that pins
that size fail where `dynamic=True` compiles it again."""

_UNLIMITED = {
    "recompile_limit": 1 << 20,
    "accumulated_recompile_limit": 1 << 20,
    "fail_on_recompile_limit_hit": True,
}
"""By default Dynamo stops compiling after 8 recompiles and runs eager from then on, in silence."""

_DYNAMO = ("torch._dynamo", "torch._dynamo.backends.common", "torch._functorch._aot_autograd.utils")
_INDUCTOR = ("torch._inductor.compile_fx", "torch._inductor.codecache", "torch._inductor.graph")

_standing = contextlib.ExitStack()


def load(*, inductor: bool) -> None:
    """Import Dynamo and AOTAutograd, and Inductor: seconds, which is why no module does it."""
    for module in (*_DYNAMO, *(_INDUCTOR if inductor else ())):
        importlib.import_module(module)


def stand(inductor: Mapping[str, Any] | None = None) -> None:
    """Let the given settings of Inductor stand, and those of Dynamo that every study needs."""
    _standing.close()
    _standing.enter_context(torch._dynamo.config.patch(_UNLIMITED))
    if inductor:
        _standing.enter_context(torch._inductor.config.patch(dict(inductor)))


def reset() -> None:
    """Withdraw the settings and forget everything compiled; files on disk stay."""
    _standing.close()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if "torch._inductor.utils" in sys.modules:
        torch._inductor.utils.clear_caches()
