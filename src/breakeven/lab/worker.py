"""One cell in one fresh process: `python -m breakeven.lab.worker JOB RECORD_FD PARENT_PID`.

The process writes records to the pipe as they come and ends with the cell's outcome. Its order:
imports, subject, cold compile and first calls, phases, accuracy, steady state, probes, the walk
through shapes, and last a second compile in the same process with the allocator keeping pages.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.export

from breakeven.errors import BreakevenError, SubjectError, Unsupported
from breakeven.lab import allocator, honesty, lifeline, procfs, statistics
from breakeven.lab.accuracy import Comparison, References, observe, owned
from breakeven.lab.compilers import registry
from breakeven.lab.compilers.compiler import Compiled, Compiler
from breakeven.lab.job import Job, Stage, decode_job, described, encode
from breakeven.lab.measure import Here, Measured, Seeds, Shape, alternate, calibrate, denormals
from breakeven.lab.padding import Bucketed
from breakeven.lab.partner import There
from breakeven.lab.records import (
    AccuracyRecord,
    Allocator,
    AnyRecord,
    Block,
    Call,
    Note,
    Outcome,
    OutcomeKind,
    PhaseRecord,
    ProgramRecord,
    ReplayRecord,
    Timing,
)
from breakeven.lab.subjects import resolve
from breakeven.lab.subjects.subject import Inputs, Size, Subject


class Stop(Exception):
    """The cell ends here with an outcome other than "ok"."""

    def __init__(self, outcome: OutcomeKind, detail: str) -> None:
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail


class Wire:
    """The pipe to the study."""

    def __init__(self, fd: int, job: Job) -> None:
        self._fd = fd
        self.key, self.attempt = job.cell.key, job.attempt

    def send(self, record: AnyRecord | Stage) -> None:
        """Write one record as one line."""
        line = memoryview(encode(record) + b"\n")
        while line:
            line = line[os.write(self._fd, line) :]

    def timing(self, name: str, seconds: float, cpu: float = 0.0, detail: str = "") -> None:
        """Report one span."""
        self.send(
            Timing(
                key=self.key,
                attempt=self.attempt,
                name=name,
                seconds=seconds,
                cpu_seconds=cpu,
                detail=detail,
            )
        )

    def note(self, name: str, text: str) -> None:
        """Report a finding in words."""
        self.send(Note(key=self.key, attempt=self.attempt, name=name, text=text))


class Bench:
    """What one process measures with: the subject, its compiled callable and its eager side."""

    def __init__(self, job: Job, wire: Wire, compiler: Compiler, subject: Subject) -> None:
        self.job, self.wire, self.compiler, self.subject = job, wire, compiler, subject
        self.size: Size = {**subject.default_size, **job.cell.size}
        self.seeds = Seeds()
        self.order = random.Random(job.cell.key)
        self.references = References(subject, quiet=compiler.own_threads)
        self.compiled = Compiled(subject.model)
        self.side = Here(subject, subject.model)
        self.eager: Here | There = Here(subject, subject.model)
        self.first: AccuracyRecord | None = None
        self.worst = 0.0
        self.bad = ""
        self._shapes: dict[str, tuple[Shape, Shape]] = {}

    @property
    def is_eager(self) -> bool:
        return self.compiler.name == "eager"

    def compile(self, prefix: str = "") -> tuple[Inputs, Any]:
        """Compile and call once; report both spans; return the inputs and the answer."""
        cell, wire = self.job.cell, self.wire
        example = self.subject.inputs(self.size, self.seeds.take(1))
        inputs = self.subject.inputs(self.size, self.seeds.take(1))
        padded = Bucketed(self.subject) if cell.policy == "bucket" else None
        policy = "static" if padded else cell.policy
        start, cpu = time.perf_counter(), procfs.tree_cpu_seconds()
        try:
            shown = padded.pad(example) if padded else example
            self.compiled = self.compiler.compile(self.subject, shown, policy, cell.off)
        except Unsupported as error:
            raise Stop("unsupported", str(error)) from error
        except Exception as error:
            raise Stop("cannot compile", described(error)) from error
        wire.timing(prefix + "compile", time.perf_counter() - start, procfs.tree_cpu_seconds() - cpu)
        call = padded.wrap(self.compiled) if padded else self.compiled.call
        start, cpu = time.perf_counter(), procfs.tree_cpu_seconds()
        try:
            answer = observe(self.subject, call, inputs)
        except Exception as error:
            raise Stop("cannot compile", described(error)) from error
        seconds = time.perf_counter() - start
        wire.timing(prefix + "first-call", seconds, procfs.tree_cpu_seconds() - cpu)
        self.side = Here(
            self.subject, call, compiles=self.compiled.compiles, check=self._check_timed
        )
        return self.subject.inputs(self.size, self.seeds.take(1)), answer

    def transient(self, role_prefix: str = "transient") -> None:
        """The calls after the first, one by one, until they have settled."""
        for index in range(self.job.transient):
            self.call(role_prefix, index, self.size, new=False)

    def call(self, part: str, index: int, size: Size, *, new: bool) -> tuple[int, Any]:
        """One call timed alone and reported: its seed and its answer."""
        seed = self.seeds.take(1)
        inputs = self.subject.inputs(size, seed)
        before, cpu = self.compiled.compiles() or 0, procfs.tree_cpu_seconds()
        start = time.perf_counter()
        answer = self.side.call(*inputs.args, **inputs.kwargs)
        seconds = time.perf_counter() - start
        compiles = (self.compiled.compiles() or 0) - before
        if self.side.restore is not None:
            self.side.restore()
        self.wire.send(
            Call(
                key=self.wire.key,
                attempt=self.wire.attempt,
                role="eager" if self.is_eager else "compiled",
                part=part,
                index=index,
                seconds=seconds,
                size=size,
                new=new,
                compiles=compiles,
                reason=self.compiled.reason() if compiles and index else "",
                cpu_seconds=procfs.tree_cpu_seconds() - cpu,
            )
        )
        return seed, answer

    def accuracy(self, size: Size, part: str) -> AccuracyRecord:
        """Compare one fresh answer with the references; stop the cell where it is wrong."""
        seed = self.seeds.take(1)
        inputs = self.subject.inputs(size, seed)
        answer = observe(self.subject, self.side.call, inputs)
        fresh = self.subject.inputs(size, seed)
        record = self.references.record(self.wire.key, self.wire.attempt, fresh, answer, size, part)
        self.wire.send(record)
        if not self.is_eager and classify(record) == "wrong":
            raise Stop("wrong", wrongness(record))
        return record

    def steady(
        self,
        kind: Allocator,
        size: Size,
        part: str = "steady",
        *,
        pairs: int | None = None,
        seconds: float | None = None,
    ) -> int:
        """Alternate eager and compiled at `size`; report every block; count those with compiles."""
        shapes = self._cut(size)
        dirty = count = 0
        for role, pair, measured in alternate(
            self.eager,
            self.side,
            size,
            self.seeds,
            shapes,
            pairs=pairs or self.job.pairs,
            seconds=seconds or self.job.seconds,
            order=self.order,
        ):
            self.report_block(role, kind, pair, size, part, measured)
            count += role == "compiled"
            dirty += role == "compiled" and measured.compiles > 0
        if count and dirty > count / 2:
            raise Stop("recompiles", f"{dirty} of {count} blocks in steady state held a compile")
        self._stop_if_bad()
        return dirty

    def report_block(
        self,
        role: str,
        kind: Allocator,
        pair: int,
        size: Size,
        part: str,
        measured: Measured,
        threads: int | None = None,
    ) -> None:
        """Send one block as a record."""
        self.wire.send(
            Block(
                key=self.wire.key,
                attempt=self.wire.attempt,
                role="eager" if role == "eager" else "compiled",
                allocator=kind,
                pair=pair,
                seconds=measured.seconds,
                batch=measured.batch,
                size=size,
                threads=threads or self.job.cell.threads,
                faults=measured.faults,
                others=measured.others,
                waited=measured.waited,
                wall=measured.wall,
                compiles=measured.compiles,
                contended=measured.contended,
                part=part,
            )
        )

    def _cut(self, size: Size) -> tuple[Shape, Shape]:
        name = repr(sorted(size.items()))
        if name not in self._shapes:
            if isinstance(self.eager, There):
                eager = self.eager.calibrate(size)
            else:
                eager = calibrate(self.eager, size, self.seeds)
            self._shapes[name] = (eager, calibrate(self.side, size, self.seeds))
        return self._shapes[name]

    def _check_timed(self, size: Size, seed: int, answer: Any) -> None:
        if self.is_eager or self.subject.mutates or self.first is None:
            return
        inputs = self.subject.inputs(size, seed)
        comparison = Comparison(owned(answer), self.references.eager(inputs))
        self.worst = max(self.worst, comparison.error)
        if comparison.structure or comparison.inexact or comparison.nan_mismatch:
            self.bad = comparison.structure or "a timed call's answer differs from eager's"
        elif self.worst > bound(self.first):
            self.bad = f"a timed call's answer is off by {self.worst:.1e} (relative RMS)"

    def _stop_if_bad(self) -> None:
        if self.bad:
            finding = honesty.examine(self.side, self.references, self.size, self.seeds)
            raise Stop(*(finding or ("wrong", self.bad)))


def bound(first: AccuracyRecord) -> float:
    """The largest error against eager that is still an answer of the class of `first`."""
    return 3 * max(2 * first.eager + 1e-6, 2 * (first.bfloat16 or 0.0), first.compiled)


def classify(record: AccuracyRecord) -> str:
    """The accuracy class of one record."""
    return statistics.accuracy_class(
        record.compiled,
        record.eager,
        record.bfloat16,
        nan_mismatch=record.nan_mismatch,
        inexact=record.inexact,
        structure=record.structure,
    )


def wrongness(record: AccuracyRecord) -> str:
    """Why an answer is wrong, in one line."""
    if record.structure:
        return record.structure
    if record.nan_mismatch:
        return (
            f"{record.nan_mismatch} elements are NaN or infinite in only one of eager and compiled"
        )
    if record.inexact:
        return f"{record.inexact} integer or bool elements differ from eager's"
    bfloat16 = "unknown" if record.bfloat16 is None else f"{record.bfloat16:.1e}"
    return (
        f"relative RMS error {record.compiled:.1e} against {record.reference}; "
        f"eager's own is {record.eager:.1e}, bf16's {bfloat16}"
    )


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
    training = subject.mode == "training"
    with torch.no_grad() if training else torch.inference_mode():
        cold(bench)
        open_partner(bench, job_file)
        try:
            warm(bench)
        finally:
            if isinstance(bench.eager, There):
                bench.eager.close()


def cold(bench: Bench) -> None:
    """The first compile of the process, its transient, its phases and its program."""
    wire = bench.wire
    wire.send(Stage("compile"))
    _, _ = bench.compile()
    bench.transient()
    wire.send(Stage("describe"))
    wire.send(PhaseRecord(phases=bench.compiled.phases(), total=0.0, key=wire.key, attempt=wire.attempt))
    try:
        wire.send(ProgramRecord(program=bench.compiled.program(), key=wire.key, attempt=wire.attempt))
    except Exception as error:
        wire.note("program", f"the program could not be described: {described(error)}")


def open_partner(bench: Bench, job_file: Path) -> None:
    """Start eager beside compilers that bring threads of their own."""
    if bench.compiler.own_threads:
        partner = There(job_file)
        bench.eager = partner
        partner.wait_ready()


def warm(bench: Bench) -> None:
    """All that follows the cold compile."""
    job, wire, work = bench.job, bench.wire, bench.job.cell.work
    wire.send(Stage("accuracy"))
    bench.first = bench.accuracy(bench.size, "first")
    bench.references.forget()
    share = denormals(bench.subject.inputs(bench.size, bench.seeds.take(1)))
    if share > 0.001:
        wire.note("denormals", f"{share:.0%} of an input's values are denormal, which slows eager")
    if "steady" in work:
        wire.send(Stage("steady"))
        bench.steady("as-it-comes", bench.size)
        sweep_threads(bench)
        probe(bench)
    if "shapes" in work:
        wire.send(Stage("shapes"))
        walk(bench)
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
    shapes = bench._cut(bench.size)
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
    except SubjectError:
        raise
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
    try:
        outcome, detail = guarded(lambda: run(job, wire, job_file))
    except SubjectError as error:
        outcome, detail = "crash", str(error)
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
