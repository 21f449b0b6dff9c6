"""The records of one subject, asked by compiler and condition: one value per process.

Blocks that hold a compile are never used; where a contended block was tried again, the last clean
try stands for its pair, else the pair counts as contended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from breakeven.lab import amortize, statistics
from breakeven.lab.accuracy import classify
from breakeven.lab.records import (
    AccuracyRecord,
    Block,
    Call,
    CellRecord,
    Note,
    ProgramRecord,
    Timing,
)
from breakeven.lab.results import AccuracyClass, Interval
from breakeven.lab.statistics import Estimate, Pair, Samples
from breakeven.lab.store import CellRecords
from breakeven.lab.subjects.subject import Size

R = TypeVar("R", bound=CellRecord)


WORST_FIRST: tuple[AccuracyClass, ...] = ("wrong", "reduced", "unknown", "f32-level")
CAUGHT = ("wrong", "memoizes", "does nothing", "defers", "recompiles")
"""Outcomes that discredit a compiler's other processes on the same subject."""


class Process:
    """What one finished process has reported."""

    def __init__(self, records: CellRecords) -> None:
        self.cell, self.outcome = records.cell, records.outcome
        self._records = records.records

    def all(self, kind: type[R]) -> list[R]:
        """Every record of one kind, in order."""
        return [record for record in self._records if isinstance(record, kind)]

    def timing(self, name: str) -> float | None:
        """Seconds of a span, None where it was not reported."""
        return next((t.seconds for t in self.all(Timing) if t.name == name), None)

    def note(self, name: str) -> str:
        """Text of a note, empty where there is none."""
        return next((n.text for n in self.all(Note) if n.name == name), "")

    def calls(self, part: str) -> list[Call]:
        """Calls that were timed alone."""
        return [call for call in self.all(Call) if call.part == part]

    def accuracy(self, part: str = "first") -> list[AccuracyRecord]:
        """Comparisons with the references."""
        return [record for record in self.all(AccuracyRecord) if record.part == part]

    def program(self) -> ProgramRecord | None:
        """What was captured and emitted."""
        return next(iter(self.all(ProgramRecord)), None)

    def blocks(
        self, allocator: str = "as-it-comes", part: str = "steady", size: Size | None = None
    ) -> list[Block]:
        """The block that stands for each size, pair and role, contended ones included."""
        chosen: dict[tuple[str, int, str], Block] = {}
        for block in self.all(Block):
            if block.allocator != allocator or block.part != part or block.compiles:
                continue
            if size is not None and block.size != size:
                continue
            key = (repr(block.size), block.pair, block.role)
            if key not in chosen or chosen[key].contended:
                chosen[key] = block
        return list(chosen.values())

    def pairs(
        self, allocator: str = "as-it-comes", part: str = "steady", size: Size | None = None
    ) -> list[tuple[Block, Block]]:
        """Neighbouring blocks (eager, compiled); clean ones alone where there are at least two."""
        sides: dict[tuple[str, int], dict[str, Block]] = {}
        for block in self.blocks(allocator, part, size):
            sides.setdefault((repr(block.size), block.pair), {})[block.role] = block
        pairs = [(s["eager"], s["compiled"]) for s in sides.values() if len(s) == 2]
        clean = [pair for pair in pairs if not pair[0].contended and not pair[1].contended]
        return clean if len(clean) >= 2 else pairs

    def log_ratio(
        self, allocator: str = "as-it-comes", part: str = "steady", size: Size | None = None
    ) -> float | None:
        """log(eager / compiled) of this process."""
        pairs = self.pairs(allocator, part, size)
        return statistics.pair_log_ratio([Pair(samples(e), samples(c)) for e, c in pairs])

    def mean(self, role: str, allocator: str = "as-it-comes") -> float | None:
        """Mean time per call (s) in steady state."""
        blocks = [pair[role == "compiled"] for pair in self.pairs(allocator)]
        return statistics.mean_per_call([samples(block) for block in blocks])

    def median(
        self,
        role: str,
        allocator: str = "as-it-comes",
        part: str = "steady",
        size: Size | None = None,
    ) -> float | None:
        """Median time per call (s): the median of block medians."""
        blocks = [pair[role == "compiled"] for pair in self.pairs(allocator, part, size)]
        values = [statistics.per_call(samples(block)) for block in blocks]
        kept = sorted(value for value in values if value is not None)
        return kept[len(kept) // 2] if kept else None

    def is_contended(self, part: str = "steady") -> bool:
        """Whether too few clean pairs are left to rest a verdict on."""
        pairs = self.pairs(part=part)
        return bool(pairs) and any(e.contended or c.contended for e, c in pairs)

    def cold(self, prefix: str = "") -> float | None:
        """Cold start (s): the call to the compiler and the first call after it."""
        compiled, first = self.timing(prefix + "compile"), self.timing(prefix + "first-call")
        return None if compiled is None or first is None else compiled + first

    def cost(self, mean: float, prefix: str = "") -> float | None:
        """C (or E): cold start and transient beyond what the calls take in steady state (s)."""
        compiled, first = self.timing(prefix + "compile"), self.timing(prefix + "first-call")
        if compiled is None or first is None:
            return None
        later = [call.seconds for call in self.calls(prefix + "transient")]
        return compiled + amortize.transient_excess([first, *later], mean)


class Evidence:
    """All finished processes of one subject at one thread count."""

    def __init__(self, cells: Iterable[CellRecords], subject: str, threads: int) -> None:
        chosen = [c for c in cells if (c.cell.subject, c.cell.threads) == (subject, threads)]
        self.processes = [Process(records) for records in chosen]
        eager = [p.log_ratio() for p in self.steady("eager")]
        self.noise = statistics.noise_floor([ratio for ratio in eager if ratio is not None])

    def find(
        self,
        compiler: str,
        *,
        policy: str = "automatic",
        off: tuple[str, ...] = (),
        state: str = "",
        work: str = "",
        ok: bool = True,
    ) -> list[Process]:
        """The processes of a compiler under a condition; `state` and `work` where given."""
        return [
            process
            for process in self.processes
            if process.cell.compiler == compiler
            and process.cell.policy == policy
            and process.cell.off == off
            and (not state or process.cell.state == state)
            and (not work or work in process.cell.work)
            and (not ok or process.outcome.outcome == "ok")
        ]

    def steady(self, compiler: str, off: tuple[str, ...] = ()) -> list[Process]:
        """Processes with a steady state at the reference size."""
        return self.find(compiler, off=off, work="steady")

    def compilers(self) -> list[str]:
        """Names in the order of their first cell, eager first."""
        names = dict.fromkeys(process.cell.compiler for process in self.processes)
        return sorted(names, key=lambda name: name != "eager")

    def first(self, compiler: str) -> Process | None:
        """The process that was to answer most; one that was caught cheating stands before it.

        A crash or time-out of a later process is told among the outcomes, it takes no numbers away.
        """
        processes = [
            p
            for p in self.processes
            if p.cell.compiler == compiler and p.cell.policy == "automatic" and not p.cell.off
        ]
        caught = [p for p in processes if p.outcome.outcome in CAUGHT]
        return next(iter([*caught, *processes]), None)

    def means(self, compiler: str) -> tuple[list[float], list[float]]:
        """Mean times per call (eager, compiled), one of each per process."""
        pairs = [(p.mean("eager"), p.mean("compiled")) for p in self.steady(compiler)]
        kept = [(e, c) for e, c in pairs if e is not None and c is not None]
        return [e for e, _ in kept], [c for _, c in kept]

    def starts(self, compiler: str, state: str) -> list[Process]:
        """Processes whose cold start happened in `state`, by the word of the compiler's cache too.

        A cache hit in a cold state, or a miss in disk-warm, was not the state that was asked for.
        """
        wrong = "miss" if state == "disk-warm" else "hit"
        found = self.find(compiler, state=state)
        told = [(p, p.program()) for p in found]
        return [p for p, record in told if record is None or record.program.cache != wrong]


def samples(block: Block) -> Samples:
    """A block as the statistics take it."""
    return Samples(block.seconds, block.batch)


def each(processes: Iterable[Process], value: Callable[[Process], float | None]) -> list[float]:
    """One value per process, absent ones left out."""
    return [v for v in map(value, processes) if v is not None]


def interval(estimate: Estimate | None, scale: float = 1.0) -> Interval | None:
    """An estimate as results show it, in another unit where `scale` is given."""
    if estimate is None:
        return None
    low = None if estimate.low is None else estimate.low * scale
    high = None if estimate.high is None else estimate.high * scale
    return Interval(estimate=estimate.estimate * scale, low=low, high=high, n=estimate.n)


def single_calls(processes: Iterable[Process], role: str) -> Iterator[float]:
    """Times of calls that were timed alone in steady state, over all processes (s)."""
    for process in processes:
        for pair in process.pairs():
            block = pair[role == "compiled"]
            if block.batch == 1:
                yield from block.seconds


def worst_accuracy(
    processes: Iterable[Process], part: str
) -> tuple[AccuracyClass, AccuracyRecord | None]:
    """The worst accuracy class over processes, and the record with the largest error in it."""
    found: list[tuple[int, float, AccuracyRecord]] = []
    for process in processes:
        for record in process.accuracy(part):
            found.append((WORST_FIRST.index(classify(record)), -record.compiled, record))
    if not found:
        return "unknown", None
    rank, _, record = min(found, key=lambda one: one[:2])
    return WORST_FIRST[rank], record
