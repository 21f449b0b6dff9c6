"""What Dynamo, AOTAutograd and Inductor tell of their compiles: a count, reasons, nested spans.

All of them report each of their steps to one logger of torch's as a pair of events, begin and end.
`watch` listens there once per process. A step's own time is its span without the spans inside it,
so nothing is counted twice; a step that is not on the map belongs to the step around it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from breakeven.lab.records import Phase, Stage

Place = tuple[str, Stage] | None
"""Where a step's own time goes: a phase with its stage, or None for "unattributed"."""

COMPILES = frozenset({"entire_frame_compile", "entire_backward_compile"})
"""The events that stand around one compile each."""

MAP: dict[str, Place] = {
    "entire_frame_compile": ("dynamo", "frontend"),
    "entire_backward_compile": None,
    "build_guards": ("guards", "frontend"),
    "gc": None,
    "backend_compile": None,
    "create_aot_dispatcher_function": ("aot-autograd", "frontend"),
    "inductor_codecache_torch_key": None,
    "_recursive_pre_grad_passes": ("pre-grad passes", "middle-end"),
    "_recursive_joint_graph_passes": ("joint-graph passes", "middle-end"),
    "_recursive_post_grad_passes": ("post-grad passes", "middle-end"),
    "compile_fx.<locals>.fw_compiler_base": None,
    "compile_fx.<locals>.bw_compiler": None,
    "inductor_compile": None,
    "fx_codegen_and_compile": None,
    "GraphLowering.run": ("lowering", "middle-end"),
    "Scheduler.__init__": ("scheduling", "middle-end"),
    "code_gen": ("codegen", "backend"),
    "PyCodeCache.load_by_key_path": ("load", "backend"),
    "async_compile.wait": ("c++", "backend"),
    "compile_file": ("c++", "backend"),
}
"""Steps of torch 2.13; what other versions name otherwise counts to the step around it."""
