"""Every environment variable of the project; nobody else reads the environment.

Options of one run belong to the command line; a variable is for what a process inherits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Knob:
    """One variable: its name, what it is when unset, and what it does."""

    name: str
    default: str
    meaning: str

    def get(self) -> str:
        """The value in this process's environment."""
        return os.environ.get(self.name, self.default)


CXX = Knob("CXX", "g++", "the C++ compiler that TorchInductor calls")
KNOBS = (CXX,)

CHANGES_MEASUREMENT = (
    *("TORCH", "PYTORCH", "INDUCTOR", "ATEN_", "ONEDNN_", "DNNL_", "MKL_", "OPENVINO_", "ORT_"),
    *("OMP_", "KMP_", "GOMP_", "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "XDG_", "PYTHONHASH"),
)
"""Prefixes of variables that a measuring process does not inherit."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def worker_environment(home: str, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a measuring process: private folders, fixed threads, no network.

    Args:
        home: folder that holds everything the process may write (caches, temporary files).
        threads: size of every thread pool.
        extra: variables on top.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(CHANGES_MEASUREMENT)
    }
    private = {
        "HOME": home,
        "TMPDIR": f"{home}/tmp",
        "XDG_CACHE_HOME": f"{home}/cache",
        "TORCHINDUCTOR_CACHE_DIR": f"{home}/cache/inductor",
        "TRITON_CACHE_DIR": f"{home}/cache/triton",
        "HF_HOME": f"{home}/cache/huggingface",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
    }
    pools = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**inherited, **private, **pools, **extra}
