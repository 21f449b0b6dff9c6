"""Makes a compiler's own headers and probes: `python -m breakeven.lab.warmup COMPILER [OFF...]`."""

from __future__ import annotations

import sys

from breakeven.lab.compilers import registry


def main() -> None:
    """Entry of the process."""
    compiler = registry.get(sys.argv[1])
    compiler.prepare()
    compiler.warm_toolchain(tuple(sys.argv[2:]))


if __name__ == "__main__":
    main()
