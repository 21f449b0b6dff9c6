"""One cell in one fresh process: `python -m breakeven.lab.worker JOB RECORD_FD PARENT_PID`.

The process writes records to the pipe as they come and ends with the cell's outcome. Its order:
imports, subject, cold compile and first calls, phases, accuracy, steady state, probes, the walk
through shapes, and last a second compile in the same process with the allocator keeping pages.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo
import torch.export

from breakeven.errors import BreakevenError, Unsupported
from breakeven.lab import allocator, honesty, lifeline, procfs
from breakeven.lab.accuracy import nan_share
from breakeven.lab.bench import Bench, Stop, Wire
from breakeven.lab.compilers import registry
from breakeven.lab.job import Job, Stage, decode_job, described, grad_mode
from breakeven.lab.measure import Here, alternate, calibrate, denormals
from breakeven.lab.partner import There
from breakeven.lab.records import (
    AccuracyRecord,
    Outcome,
    OutcomeKind,
    PhaseRecord,
    ProgramRecord,
    ReplayRecord,
)
from breakeven.lab.subjects import resolve


def run(job: Job, wire: Wire, job_file: Path) -> None:
    """Everything this cell does, in order."""
    torch.set_num_threads(job.cell.threads)
    compiler = registry.get(job.cell.compiler)
    start = time.perf_counter()
    compiler.prepare()
    wire.timing("import-compiler", time.perf_counter() - start)
    wire.send(Stage("build"))
    start = time.perf_counter()
    subject = resolve.load(job.cell.subject, job.options)
    wire.timing("build", time.perf_counter() - start)
    bench = Bench(job, wire, compiler, subject)
    with grad_mode(subject.mode):
        cold(bench, job_file)
        try:
            warm(bench)
        finally:
            if isinstance(bench.eager, There):
                bench.eager.close()


def cold(bench: Bench, job_file: Path) -> None:
    """The first compile of the process, its transient, its phases and its program.

    The eager partner is started as soon as nothing is timed, so that it loads meanwhile.
    """
    wire = bench.wire
    wire.send(Stage("compile"))
    bench.compile()
    wire.send(Stage("transient"))
    bench.transient()
    wire.send(Stage("describe"))
    alternates = {"steady", "replay", "inprocess"} & set(bench.job.cell.work) or bench.job.sizes
    if bench.compiler.own_threads and alternates:
        bench.eager = There(job_file)
    wire.send(PhaseRecord(phases=bench.compiled.phases(), key=wire.key, attempt=wire.attempt))
    try:
        wire.send(
            ProgramRecord(program=bench.compiled.program(), key=wire.key, attempt=wire.attempt)
        )
    except Exception as error:
        wire.note("program", f"the program could not be described: {described(error)}")


def warm(bench: Bench) -> None:
    """All that follows the cold compile."""
    job, wire, work = bench.job, bench.wire, bench.job.cell.work
    wire.send(Stage("accuracy"))
    bench.first = bench.accuracy(bench.size, "first")
    bench.references.forget()
    lost = nan_share(bench.references.eager(bench.subject.inputs(bench.size, bench.seeds.take(1))))
    if lost:
        wire.note("nan", f"{lost:.0%} of eager's own answer is NaN")
    share = denormals(bench.subject.inputs(bench.size, bench.seeds.take(1)))
    if share > 0.001:
        wire.note("denormals", f"{share:.0%} of an input's values are denormal, which slows eager")
    if isinstance(bench.eager, There):
        bench.eager.wait_ready()
    if "steady" in work:
        wire.send(Stage("steady"))
        bench.steady("as-it-comes", bench.size)
        sweep_threads(bench)
        probe(bench)
    if "shapes" in work:
        wire.send(Stage("shapes"))
        try:
            walk(bench)
        except Exception as error:
            if len(work) == 1 or isinstance(error, Stop):
                raise
            wire.note("walk", f"the walk through the trace broke: {described(error)}")
    if "replay" in work:
        wire.send(Stage("replay"))
        replay(bench)
    if "inprocess" in work:
        wire.send(Stage("inprocess"))
        again(bench)
    if job.cell.work and not bench.is_eager:
        final_accuracy(bench)


def sweep_threads(bench: Bench) -> None:
    """Eager at other thread counts against eager at the cell's own: is a speedup only threading?"""
    own = bench.job.cell.threads
    for threads in bench.job.sweep:
        if threads == own or not bench.is_eager:
            continue
        other = Here(bench.subject, bench.subject.model, threads=threads)
        base = Here(bench.subject, bench.subject.model, threads=own)
        shapes = (calibrate(base, bench.size, bench.seeds),) * 2
        for role, pair, measured in alternate(
            base, other, bench.size, bench.seeds, shapes, pairs=6, seconds=1.5, order=bench.order
        ):
            count = threads if role == "compiled" else own
            bench.report_block(
                role, "as-it-comes", pair, bench.size, f"threads-{threads}", measured, count
            )
        torch.set_num_threads(own)


def probe(bench: Bench) -> None:
    """Dishonest or leaking callables are named."""
    if bench.is_eager:
        return
    finding = honesty.examine(bench.side, bench.references, bench.size, bench.seeds)
    if finding is not None:
        raise Stop(*finding)
    if bench.job.cell.state == "disk-warm" or bench.job.cell.off:
        return
    leaked = honesty.leak(bench.side, bench.size, bench.seeds)
    if leaked:
        bench.wire.note("leak", f"memory grows by {leaked / 1e6:.2f} MB a call")


def walk(bench: Bench) -> None:
    """The trace, call by call, then a steady state at each of the chosen sizes."""
    seen = {repr(bench.size)}
    before = procfs.resident()
    for index, step in enumerate(bench.job.trace):
        size = {**bench.size, **step}
        bench.call("shapes", index, size, new=repr(size) not in seen)
        seen.add(repr(size))
    grown = procfs.resident() - before
    bench.wire.note("walk-growth", str(grown))
    for step in bench.job.sizes:
        size = {**bench.size, **step}
        bench.accuracy(size, "shapes")
        bench.steady("as-it-comes", size, "shape", pairs=5, seconds=bench.job.size_seconds)


def replay(bench: Bench) -> None:
    """Calls counted from the first one on, eager and compiled side by side, until the aim."""
    job = bench.job
    end = time.perf_counter() + job.replay_seconds
    done = {"eager": 0, "compiled": 0}
    spent = {"eager": 0.0, "compiled": 0.0}
    points: dict[str, tuple[list[int], list[float]]] = {"eager": ([], []), "compiled": ([], [])}
    shapes = bench.cut(bench.size)
    while time.perf_counter() < end and min(done.values()) < job.replay_calls:
        for role, _, measured in alternate(
            bench.eager,
            bench.side,
            bench.size,
            bench.seeds,
            shapes,
            pairs=1,
            seconds=1.0,
            order=bench.order,
        ):
            done[role] += len(measured.seconds) * measured.batch
            spent[role] += sum(measured.seconds)
            points[role][0].append(done[role])
            points[role][1].append(spent[role])
    for role, (counts, cumulative) in points.items():
        bench.wire.send(
            ReplayRecord(
                key=bench.wire.key,
                attempt=bench.wire.attempt,
                role="eager" if role == "eager" else "compiled",
                counts=counts,
                cumulative=cumulative,
            )
        )


def again(bench: Bench) -> None:
    """A second compile in this process, then steady state with freed pages kept."""
    bench.compiler.reset()
    if not allocator.keep_freed_pages():
        bench.wire.note("allocator", "this C library cannot be told to keep freed pages")
    if isinstance(bench.eager, There):
        bench.eager.keep_freed_pages()
    bench.compile("inprocess-")
    bench.wire.send(Stage("kept"))
    bench.transient("inprocess-transient")
    bench.steady("kept", bench.size)


def final_accuracy(bench: Bench) -> None:
    """The worst error of all timed calls, beside the first accuracy record."""
    if bench.first is None:
        return
    bench.wire.send(
        AccuracyRecord(
            key=bench.wire.key,
            attempt=bench.wire.attempt,
            compiled=bench.worst,
            eager=bench.first.eager,
            bfloat16=bench.first.bfloat16,
            reference="eager",
            size=bench.size,
            part="timed",
        )
    )


def guarded(work: Callable[[], None]) -> tuple[OutcomeKind, str]:
    """Run `work` and say how it ended; no exception leaves."""
    try:
        work()
    except Stop as stop:
        return stop.outcome, stop.detail
    except Unsupported as error:
        return "unsupported", str(error)
    except BreakevenError as error:
        return "crash", str(error)
    except MemoryError as error:
        return "out of memory", described(error)
    except SystemExit as error:
        return "crash", f"the subject or its compiler called sys.exit({error.code})"
    except BaseException as error:
        return "crash", described(error)
    return "ok", ""


def main() -> None:
    """Entry of the process."""
    lifeline.hold(int(sys.argv[3]))
    job_file, fd = Path(sys.argv[1]), int(sys.argv[2])
    job = decode_job(job_file.read_bytes())
    wire = Wire(fd, job)
    wire.timing("import", procfs.process_age())
    start = time.perf_counter()
    outcome, detail = guarded(lambda: run(job, wire, job_file))
    wire.send(
        Outcome(
            key=wire.key,
            attempt=wire.attempt,
            outcome=outcome,
            detail=detail,
            seconds=time.perf_counter() - start,
        )
    )
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.close(fd)
    os._exit(0)


if __name__ == "__main__":
    main()
