"""Experiment `fusion`: what each compiler gains, and which of its techniques gave it."""

from __future__ import annotations

import math
from typing import cast

import msgspec

from breakeven.lab import statistics
from breakeven.lab.compilers.compiler import Technique
from breakeven.lab.experiments.evidence import (
    Evidence,
    Process,
    each,
    interval,
    single_calls,
    worst_accuracy,
)
from breakeven.lab.records import MemoryRecord, Program
from breakeven.lab.results import Ablation, Interval, Row, Verdict
from breakeven.lab.roofline import Ceilings

ALL_OFF, REMAINDER = "all off", "remainder"


def row(evidence: Evidence, compiler: str, version: str, ceilings: Ceilings | None) -> Row:
    """The line of one compiler; its costs are filled in by `overhead`."""
    first = evidence.first(compiler)
    if first is None:
        return Row(compiler=compiler, version=version, outcome="not run")
    failed = first.outcome.outcome != "ok"
    accuracy, worst = worst_accuracy([first] if failed else evidence.find(compiler), "first")
    line = Row(
        compiler=compiler,
        version=version,
        outcome=first.outcome.outcome,
        detail=first.outcome.detail,
        accuracy="baseline" if compiler == "eager" else accuracy,
        error=worst.compiled if worst else None,
        eager_error=worst.eager if worst else None,
        bfloat16_error=worst.bfloat16 if worst else None,
    )
    if failed:
        return line
    processes = evidence.steady(compiler)
    line = _with_speed(line, evidence, processes)
    line = _with_times(line, processes)
    return _with_program(line, evidence.find(compiler), ceilings)


def _with_speed(line: Row, evidence: Evidence, processes: list[Process]) -> Row:
    """Speedups and what they say."""
    speedup = statistics.process_interval(each(processes, Process.log_ratio))
    kept = statistics.process_interval(each(processes, lambda p: p.log_ratio("kept")))
    contended = any(process.is_contended() for process in processes)
    verdict = statistics.verdict(speedup, evidence.noise, contended=contended)
    return msgspec.structs.replace(
        line,
        speedup=interval(speedup),
        speedup_kept=interval(kept),
        speedup_best_threads=_against_best_threads(evidence, interval(speedup)),
        verdict="baseline" if line.compiler == "eager" else cast(Verdict, verdict.kind),
    )


def _with_times(line: Row, processes: list[Process]) -> Row:
    """Times per call, their tail, and what disturbed them."""
    alone = list(single_calls(processes, "compiled"))
    blocks = [block for process in processes for block in process.blocks()]
    compiled = statistics.quantity_interval(each(processes, lambda p: p.median("compiled")))
    eager = statistics.quantity_interval(each(processes, lambda p: p.median("eager")))
    return msgspec.structs.replace(
        line,
        ms=interval(compiled, 1e3),
        eager_ms=interval(eager, 1e3),
        mean_ms=_mean(each(processes, lambda p: p.mean("compiled")), 1e3),
        p90_ms=_scaled(statistics.quantile(alone, 0.9)),
        p99_ms=_scaled(statistics.quantile(alone, 0.99)),
        samples=len(alone),
        outliers=sum(map(len, statistics.outliers(alone))),
        contended=sum(block.contended for block in blocks),
        blocks=len(blocks),
        faults=_faults(processes, "compiled"),
        faults_eager=_faults(processes, "eager"),
        notes=_notes(processes),
    )


def _with_program(line: Row, processes: list[Process], ceilings: Ceilings | None) -> Row:
    """What was captured and emitted, and how near it comes to the machine's ceilings."""
    program = _program(processes)
    seconds = None if line.ms is None else line.ms.estimate * 1e-3
    return msgspec.structs.replace(
        line,
        compile_peak_bytes=_compile_peak(processes),
        operators=program.operators,
        kernels=program.kernels,
        bytes_before=program.bytes_before,
        bytes_after=program.bytes_after,
        flops=program.flops,
        bandwidth_fraction=ceilings.bandwidth_fraction(program, seconds) if ceilings else None,
        peak_fraction=ceilings.peak_fraction(program, seconds) if ceilings else None,
    )


def best_threads(evidence: Evidence) -> tuple[int, float]:
    """Eager's best thread count and its gain over the cell's own count (1.0 if that is best).

    Contended blocks do not count: beside other work fewer threads win, whatever the model.
    """
    best, gain = 0, 1.0
    counts: dict[int, list[float]] = {}
    for process in evidence.steady("eager"):
        for threads in range(1, process.cell.threads):
            part = f"threads-{threads}"
            ratio = process.log_ratio(part=part)
            if ratio is not None and not process.is_contended(part):
                counts.setdefault(threads, []).append(ratio)
    for threads, ratios in counts.items():
        ratio = math.exp(sum(ratios) / len(ratios))
        if ratio > max(gain, 1 + evidence.noise):
            best, gain = threads, ratio
    return best, gain


def ablations(
    evidence: Evidence, compiler: str, techniques: tuple[Technique, ...]
) -> list[Ablation]:
    """Each technique off against the same compiler with all on; all-off and remainder beside."""
    base = evidence.steady(compiler)
    rows = [_ablation(evidence, base, compiler, (t.name,), t.name, t.stage) for t in techniques]
    found = [one for one in rows if one is not None]
    names = tuple(t.name for t in techniques)
    whole = _ablation(evidence, base, compiler, names, ALL_OFF, "") if len(names) > 1 else None
    if whole is None:
        return found
    found.append(whole)
    single = [one.slowdown.estimate for one in found[:-1] if one.slowdown is not None]
    if whole.slowdown is not None and len(single) == len(names):
        left = whole.slowdown.estimate / math.prod(single)
        found.append(
            Ablation(
                compiler=compiler,
                technique=REMAINDER,
                slowdown=Interval(estimate=left, n=whole.slowdown.n),
                detail="all off over the product of the single ones: what interaction adds",
            )
        )
    return found


def _ablation(
    evidence: Evidence,
    base: list[Process],
    compiler: str,
    off: tuple[str, ...],
    name: str,
    stage: str,
) -> Ablation | None:
    tried = evidence.find(compiler, off=off, ok=False)
    if not tried:
        return None
    failed = next((p for p in tried if p.outcome.outcome != "ok"), None)
    if failed is not None:
        return Ablation(
            compiler=compiler,
            technique=name,
            stage=stage,
            outcome=failed.outcome.outcome,
            detail=failed.outcome.detail,
        )
    over, under = each(base, Process.log_ratio), each(tried, Process.log_ratio)
    slowdown = statistics.quotient_interval(over, under)
    took = _took(base, tried)
    noise = evidence.noise
    if slowdown is not None and slowdown.n == 1:  # two single processes are compared
        noise = max(noise, math.sqrt(2) * statistics.PRELIMINARY_MARGIN)
    verdict = statistics.verdict(slowdown, noise).kind
    return Ablation(
        compiler=compiler,
        technique=name,
        stage=stage,
        slowdown=interval(slowdown),
        cold=interval(statistics.quantity_interval(each(tried, Process.cold))),
        took=took,
        verdict=cast(Verdict, {"faster": "slower", "slower": "faster"}.get(verdict, verdict)),
        detail="" if took is not False else "no effect here: program and kernels are the same",
    )


def _took(base: list[Process], tried: list[Process]) -> bool | None:
    ours = {r.program.digest for p in base if (r := p.program()) is not None} - {""}
    theirs = {r.program.digest for p in tried if (r := p.program()) is not None} - {""}
    return None if not ours or not theirs else ours.isdisjoint(theirs)


def _against_best_threads(evidence: Evidence, speedup: Interval | None) -> Interval | None:
    _, gain = best_threads(evidence)
    if speedup is None or gain == 1.0:
        return speedup
    low = None if speedup.low is None else speedup.low / gain
    high = None if speedup.high is None else speedup.high / gain
    return Interval(estimate=speedup.estimate / gain, low=low, high=high, n=speedup.n)


def _program(processes: list[Process]) -> Program:
    records = [record for p in processes if (record := p.program()) is not None]
    return records[0].program if records else Program()


def _faults(processes: list[Process], role: str) -> float | None:
    return _mean([pair[role == "compiled"].faults for p in processes for pair in p.pairs()])


def _compile_peak(processes: list[Process]) -> int | None:
    peaks = [
        record.peak - record.before
        for p in processes
        for record in p.all(MemoryRecord)
        if record.name == "compile"
    ]
    return max(peaks, default=None)


def _notes(processes: list[Process]) -> list[str]:
    names = ("leak", "nan", "denormals", "allocator", "program")
    return list(dict.fromkeys(t for p in processes for n in names if (t := p.note(n))))


def _mean(values: list[float], scale: float = 1.0) -> float | None:
    return scale * math.fsum(values) / len(values) if values else None


def _scaled(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
