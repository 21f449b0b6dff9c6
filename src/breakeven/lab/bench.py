"""What one process measures with: the subject, its compiled callable and its eager side."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from breakeven.errors import Unsupported
from breakeven.lab import honesty, procfs
from breakeven.lab.accuracy import (
    Comparison,
    References,
    bound,
    classify,
    observe,
    owned,
    wrongness,
)
from breakeven.lab.compilers.compiler import Compiled, Compiler
from breakeven.lab.job import Job, Stage, described, encode
from breakeven.lab.measure import Here, Measured, Seeds, Shape, alternate, calibrate
from breakeven.lab.padding import Bucketed
from breakeven.lab.partner import There
from breakeven.lab.records import (
    AccuracyRecord,
    Allocator,
    AnyRecord,
    Block,
    Call,
    Note,
    OutcomeKind,
    Timing,
)
from breakeven.lab.subjects.subject import Size, Subject


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
        _ = subject.axes  # found here, so that it does not fall into a compiler's time
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

    def compile(self, prefix: str = "") -> None:
        """Compile and call once; report both spans."""
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
        except MemoryError:
            raise
        except Exception as error:
            raise Stop("cannot compile", described(error)) from error
        wire.timing(
            prefix + "compile", time.perf_counter() - start, procfs.tree_cpu_seconds() - cpu
        )
        call = padded.wrap(self.compiled) if padded else self.compiled.call
        start, cpu = time.perf_counter(), procfs.tree_cpu_seconds()
        try:
            observe(self.subject, call, inputs)
        except Unsupported as error:
            raise Stop("unsupported", str(error)) from error
        except MemoryError:
            raise
        except Exception as error:
            raise Stop("cannot compile", described(error)) from error
        seconds = time.perf_counter() - start
        wire.timing(prefix + "first-call", seconds, procfs.tree_cpu_seconds() - cpu)
        self.side = Here(
            self.subject, call, compiles=self.compiled.compiles, check=self._check_timed
        )

    def transient(self, part: str = "transient") -> None:
        """The calls after the first, one by one, until they have settled."""
        for index in range(self.job.transient):
            self.call(part, index, self.size, new=False)

    def call(self, part: str, index: int, size: Size, *, new: bool) -> None:
        """One call timed alone and reported."""
        inputs = self.subject.inputs(size, self.seeds.take(1))
        before, cpu = self.compiled.compiles() or 0, procfs.tree_cpu_seconds()
        start = time.perf_counter()
        self.side.call(*inputs.args, **inputs.kwargs)
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

    def accuracy(self, size: Size, part: str) -> AccuracyRecord:
        """Compare one fresh answer with the references; stop the cell where it is wrong."""
        seed = self.seeds.take(1)
        inputs = self.subject.inputs(size, seed)
        answer = observe(self.subject, self.side.call, inputs)
        fresh = self.subject.inputs(size, seed)
        record = self.references.record(self.wire.key, self.wire.attempt, fresh, answer, size, part)
        self.wire.send(record)
        if not self.is_eager and classify(record) == "wrong":
            raise self.caught(wrongness(record))
        return record

    def steady(
        self,
        kind: Allocator,
        size: Size,
        part: str = "steady",
        *,
        pairs: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Alternate eager and compiled at `size` and report every block.

        Raises:
            Stop: most blocks held a compile, or a timed call's answer was wrong.
        """
        shapes = self.cut(size)
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

    def cut(self, size: Size) -> tuple[Shape, Shape]:
        """How blocks of eager and of compiled are cut at `size`, found out once per size."""
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
        seen = owned(answer)
        comparison = Comparison(seen, self.references.eager(inputs))
        self.worst = max(self.worst, comparison.error)
        odd = comparison.structure or comparison.inexact or comparison.nan_mismatch
        if not odd and comparison.error <= bound(self.first):
            return
        key, attempt = self.wire.key, self.wire.attempt
        record = self.references.record(key, attempt, inputs, seen, size, "timed")
        if classify(record) != classify(self.first):
            self.bad = f"a timed call's answer differs: {wrongness(record)}"

    def _stop_if_bad(self) -> None:
        if self.bad:
            raise self.caught(self.bad)

    def caught(self, wrong: str) -> Stop:
        """A wrong answer, by its cause where a probe finds one."""
        try:
            finding = honesty.examine(self.side, self.references, self.size, self.seeds)
        except Exception:
            finding = None
        return Stop(*(finding or ("wrong", wrong)))
