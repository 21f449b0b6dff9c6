"""How near a callable comes to what this machine can do: bandwidth curve and FMA peak."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from breakeven.lab import ceilings
from breakeven.lab.records import Program

MEASURE_SECONDS = 120


class Ceilings(msgspec.Struct, frozen=True):
    """Measured once per study: (bytes, bytes/s) points, and FLOP/s (2 per fused multiply-add)."""

    bandwidth: list[tuple[float, float]]
    peak: float

    def bandwidth_fraction(self, program: Program, seconds: float | None) -> float | None:
        """Bytes moved per second over the curve at that footprint; None where bytes are unknown."""
        moved = program.bytes_after or program.bytes_before
        if not moved or not seconds or not self.bandwidth:
            return None
        at = ceilings.bandwidth_at([(int(b), r) for b, r in self.bandwidth], moved)
        return moved / seconds / at if at else None

    def peak_fraction(self, program: Program, seconds: float | None) -> float | None:
        """FLOP per second over the peak; None where the program's FLOP are unknown."""
        if not program.flops or not seconds or not self.peak:
            return None
        return program.flops / seconds / self.peak


def measure(threads: int) -> Ceilings | None:
    """Measure both ceilings in a process of its own: some ten seconds; None where that fails.

    Native threads run there, which an interrupted study could not leave safely; and what they
    allocate does not stay in the study.
    """
    command = [sys.executable, "-P", "-m", __name__, str(threads)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
        timeout=MEASURE_SECONDS,
    )
    if done.returncode:
        return None
    return msgspec.json.decode(done.stdout, type=Ceilings)


def main() -> None:
    """Entry of `python -m breakeven.lab.roofline THREADS`: the ceilings as JSON."""
    threads = int(sys.argv[1])
    curve = ceilings.bandwidth_curve(threads)
    found = Ceilings(
        bandwidth=[(float(size), rate) for size, rate in curve], peak=ceilings.fma_peak(threads)
    )
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
