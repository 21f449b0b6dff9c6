"""A study: prices, orders and runs the cells, feeds the store, resumes where it stopped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from breakeven import knobs
from breakeven.errors import NothingMeasured, SubjectError
from breakeven.lab import inquiry, machine, resume, roofline
from breakeven.lab.compilers import registry
from breakeven.lab.compilers.compiler import Availability, Compiler
from breakeven.lab.describe import Facts, Question
from breakeven.lab.experiments.plan import Planned, Priority, Scope, plan
from breakeven.lab.homes import Homes
from breakeven.lab.job import Job
from breakeven.lab.process import Limits, Run
from breakeven.lab.records import SCHEMA, Begin, Cell, Header, Outcome, short
from breakeven.lab.roofline import Ceilings
from breakeven.lab.store import Store
from breakeven.lab.subjects import resolve

FULL_MINUTES, QUICK_MINUTES = 10.0, 3.0
"""Budget per subject where none is given."""
EXPERIMENTS = ("fusion", "overhead", "shapes")
CELL_SECONDS = 300.0
LEAST_SECONDS, GRACE_SECONDS = 60.0, 30.0
"""A cell may outlast the budget by the grace, and always has the least."""
MEMORY_SHARE = 0.85
PRICES = {"inductor": 45.0, "inductor-freezing": 45.0, "inductor-freezing-max-autotune": 120.0}
USUAL_PRICE = 15.0
PRIORITY_SHARE = {Priority.REPLAY: 0.7, Priority.COLD: 0.6, Priority.POLICY: 0.8}
"""Price of a cell that does less than the first one, as a share of that one's price."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    subjects: list[str]
    compilers: list[str] = msgspec.field(default_factory=lambda: list(registry.DEFAULT))
    experiments: list[str] = msgspec.field(default_factory=lambda: list(EXPERIMENTS))
    calls: int = 10_000
    shapes: str = ""
    quick: bool = False
    out: str = "study"
    budget: float | None = None  # minutes
    threads: list[int] = []
    options: resolve.Options = resolve.Options()
    timeout: float = CELL_SECONDS
    memory: float | None = None  # GiB that a cell's process tree may hold
    command: list[str] = []


class Progress(Protocol):
    """What a study tells while it runs; called outside timed blocks only."""

    def cell(self, text: str, done: int, planned: int, seconds_left: float) -> None:
        """A cell begins."""
        ...

    def stage(self, name: str) -> None:
        """The cell enters a part."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """The cell has ended."""
        ...


def run(
    request: Request, progress: Progress, recommend: Callable[[Path], str] = lambda _: ""
) -> None:
    """Run every cell of the request that the budget allows and the store does not hold yet.

    `recommend` names the compiler that the records of a folder recommend; its replay comes first.

    Raises:
        UsageError: an unknown subject, compiler or experiment.
        SubjectError: a subject does not load or does not run in eager PyTorch.
        StoreError: the folder cannot be written, or another study runs in it.
        NothingMeasured: no cell ended in a number.
    """
    subjects = [name for spec in request.subjects for name in expanded(spec, request.quick)]
    compilers = [registry.get(name) for name in with_eager(request.compilers)]
    with Store.open(Path(request.out), write=True) as store:
        _Study(request, store, progress, recommend).run(subjects, compilers)


def expanded(spec: str, quick: bool) -> list[str]:
    """The subjects of one word; a quick study takes a bare suite at its medium size alone."""
    return resolve.expand(f"{spec}@medium" if quick and spec in resolve.SUITES else spec)


def with_eager(names: list[str]) -> list[str]:
    """The names, each once, eager first: it is everyone's baseline."""
    return ["eager", *dict.fromkeys(name for name in names if name != "eager")]


class _Study:
    def __init__(
        self,
        request: Request,
        store: Store,
        progress: Progress,
        recommend: Callable[[Path], str],
    ) -> None:
        self._recommend = recommend
        self._request, self._store, self._progress = request, store, progress
        self._folder = Path(request.out).resolve()
        self._homes = Homes(self._folder / "homes")
        self._logs = self._folder / "logs"
        self._logs.mkdir(exist_ok=True)
        self._availability: dict[str, Availability] = {}
        self._prices: dict[tuple[str, bool], float] = {}
        self._ceilings: dict[str, Ceilings] = {}
        self._environment = machine.environment()
        self._headers: list[Header] = []
        self._facts: dict[str, Facts] = {}
        self._unloadable: dict[str, str] = {}
        self._before = 0.0
        self._subjects = 1
        self._start = time.perf_counter()

    def run(self, subjects: list[str], compilers: list[Compiler]) -> None:
        self._availability = {one.name: one.available() for one in compilers}
        self._headers = self._store.headers()
        resume.check(self._folder, self._headers, self._environment)
        self._subjects = len(subjects)
        facts = {name: self._describe(name, compilers) for name in subjects}
        self._facts = {name: one for name, one in facts.items() if one.error is None}
        if not self._facts:
            raise SubjectError(*next(one.error for one in facts.values() if one.error))
        self._unloadable = {n: " ".join(one.error) for n, one in facts.items() if one.error}
        subjects, facts = list(self._facts), self._facts
        planned = self._plan(subjects, facts, compilers)
        self._measure_ceilings()
        self._open_record(planned, facts)
        done = self._finished()
        self._before = sum(done[one.cell.key].seconds for one in planned if one.cell.key in done)
        failed = {
            _group(one.cell)
            for one in planned
            if one.priority is Priority.FIRST
            and one.cell.key in done
            and done[one.cell.key].outcome != "ok"
        }
        waiting = [one for one in planned if one.cell.key not in done]
        self._work(waiting, len(planned), failed)
        self._homes.clear()
        if not any(one.outcome == "ok" for one in self._store.finished().values()):
            raise NothingMeasured(
                "A study needs at least one cell that ends in a number",
                f"None of {len(planned)} did; the outcomes are in {self._folder}",
                f"Read them with `breakeven report {self._request.out}` and the logs beside them",
            )

    def _describe(self, name: str, compilers: list[Compiler]) -> Facts:
        self._progress.cell(f"looking at {short(name)}", 0, 0, self._budget())
        here = [one.name for one in compilers if self._availability[one.name].here]
        question = Question(
            subject=name,
            options=self._request.options,
            compilers=here,
            threads=self._threads()[0],
            shapes=self._request.shapes,
            suite=self._subjects > 1,
        )
        facts = inquiry.ask(question, self._folder)
        if facts.error is not None and self._subjects == 1:
            raise SubjectError(*facts.error)
        resume.check_subject(self._folder, self._headers, name, facts.fingerprint)
        return facts

    def _measure_ceilings(self) -> None:
        """Once per folder: bandwidth curve and peak are the machine's, not the study's."""
        for header in self._headers:
            known = header.plan.get("ceilings")
            if known:
                self._ceilings = msgspec.convert(known, dict[str, Ceilings])
        for threads in self._threads():
            if str(threads) not in self._ceilings:
                self._progress.cell("measuring bandwidth and peak", 0, 0, self._budget())
                found = roofline.measure(threads)
                if found is not None:
                    self._ceilings[str(threads)] = found

    def _plan(
        self, subjects: list[str], facts: dict[str, Facts], compilers: list[Compiler]
    ) -> list[Planned]:
        planned: list[Planned] = []
        for index, name in enumerate(subjects):
            for threads in self._threads():
                scope = Scope(
                    subject=name,
                    facts=facts[name],
                    threads=threads,
                    experiments=tuple(self._request.experiments),
                    quick=self._request.quick,
                    suite=len(subjects) > 1,
                    trace=facts[name].trace,
                    machine_cold=index == 0,
                )
                planned += plan(scope, compilers)
        return sorted(planned, key=lambda one: one.priority)

    def _open_record(self, planned: list[Planned], facts: dict[str, Facts]) -> None:
        self._store.append(
            Header(
                schema=SCHEMA,
                command=self._request.command,
                plan={
                    "request": msgspec.to_builtins(self._request),
                    "facts": msgspec.to_builtins(facts),
                    "cells": msgspec.to_builtins([one.cell for one in planned]),
                    "versions": {n: a.version for n, a in self._availability.items()},
                    "unloadable": self._unloadable,
                    "ceilings": msgspec.to_builtins(self._ceilings),
                },
                environment=self._environment,
                time=time.time(),
            )
        )

    def _finished(self) -> dict[str, Outcome]:
        """Cells not to be run again; an absent compiler that has come since is tried anew."""
        return {
            key: outcome
            for key, outcome in self._store.finished().items()
            if outcome.outcome != "unavailable"
        }

    def _work(
        self,
        waiting: list[Planned],
        total: int,
        failed: set[tuple[str, str, int]],
    ) -> None:
        told = False
        queue = deque(waiting)
        while queue:
            if queue[0].priority is Priority.REPLAY and not told:
                queue, told = self._recommended_first(queue), True
            one = queue.popleft()
            cell = one.cell
            reason = self._availability[cell.compiler].reason
            group = _group(cell)
            if reason:
                if one.priority is Priority.FIRST:
                    self._record_outcome(cell, "unavailable", reason)
                continue
            if group in failed and one.priority is not Priority.FIRST:
                continue
            if self._price(one) > self._budget() and not self._must(one):
                continue
            self._progress.cell(
                label(cell), total - len(queue) - 1, total, max(0.0, self._budget())
            )
            outcome = self._run_cell(one)
            self._learn(one, outcome)
            self._progress.ended(outcome)
            if outcome.outcome != "ok" and one.priority is Priority.FIRST:
                failed.add(group)

    def _recommended_first(self, queue: deque[Planned]) -> deque[Planned]:
        """The replay of the choice that the records so far recommend, before the other replays."""
        best = self._recommend(self._folder)
        replays = [one for one in queue if one.priority is Priority.REPLAY]
        rest = [one for one in queue if one.priority is not Priority.REPLAY]
        return deque([*sorted(replays, key=lambda one: one.cell.compiler != best), *rest])

    def _must(self, one: Planned) -> bool:
        return one.cell.compiler == "eager" and one.priority is Priority.FIRST

    def _run_cell(self, one: Planned) -> Outcome:
        """One process, its records and its outcome in the store, its folder put away."""
        cell = one.cell
        if cell.state == "disk-warm" and not self._homes.is_filled(cell):
            problem = self._fill(one)
            if problem.outcome != "ok":
                return self._record_outcome(cell, problem.outcome, problem.detail)
        home = self._homes.make(cell)
        attempt = self._store.next_attempt(cell.key)
        self._store.append(Begin(key=cell.key, attempt=attempt, cell=cell, time=time.time()))
        job = self._job(one, attempt)
        outcome = self._run(job, home, self._store.append)
        self._store.append(outcome)
        self._homes.leave(cell, home, keep=outcome.outcome == "ok" and not cell.off)
        return outcome

    def _fill(self, one: Planned) -> Outcome:
        """Make the caches that a disk-warm cell is to find, in a process that is not recorded."""
        cell = msgspec.structs.replace(one.cell, state="toolchain-warm", work=())
        home = self._homes.make(cell)
        job = self._job(msgspec.structs.replace(one, cell=cell), 0)
        outcome = self._run(job, home, lambda _: None)
        self._homes.leave(one.cell, home, keep=outcome.outcome == "ok")
        return outcome

    def _run(self, job: Job, home: Path, on_record: Callable[..., None]) -> Outcome:
        cell = job.cell
        environment = knobs.worker_environment(str(home), cell.threads, {})
        left = max(LEAST_SECONDS, self._budget() + GRACE_SECONDS)
        run_ = Run(
            job,
            home / "job.json",
            self._logs / f"{cell.key.replace('|', '_').replace('/', '_')}.log",
            environment,
            Limits(
                seconds=min(self._request.timeout, left),
                memory=self._memory(),
            ),
            on_record,
            self._progress.stage,
        )
        return run_.finish()

    def _memory(self) -> int:
        """Bytes that a cell may hold: what was asked for, never more than is there."""
        room = int(MEMORY_SHARE * machine.memory_available())
        asked = self._request.memory
        return room if asked is None else min(room, int(asked * 2**30))

    def _job(self, one: Planned, attempt: int) -> Job:
        quick = self._request.quick
        replay = one.priority is Priority.REPLAY
        return Job(
            cell=one.cell,
            attempt=attempt,
            options=msgspec.structs.replace(
                self._request.options,
                threads=one.cell.threads,
                known=self._facts[one.cell.subject].known,
            ),
            trace=one.trace,
            sizes=one.sizes,
            sweep=one.sweep,
            pairs=8 if quick else 12,
            seconds=2.0 if quick else 4.0,
            size_seconds=0.6 if quick else 1.0,
            replay_calls=self._request.calls if replay else 0,
            replay_seconds=min(20.0, max(5.0, self._budget() / 4)) if replay else 0.0,
        )

    def _record_outcome(self, cell: Cell, kind: str, detail: str) -> Outcome:
        """The outcome of a cell whose process was not started."""
        attempt = self._store.next_attempt(cell.key)
        self._store.append(Begin(key=cell.key, attempt=attempt, cell=cell, time=time.time()))
        outcome = Outcome(key=cell.key, attempt=attempt, outcome=kind, detail=detail)  # type: ignore[arg-type]
        self._store.append(outcome)
        return outcome

    def _threads(self) -> list[int]:
        return self._request.threads or [machine.usable_cores()]

    def _budget(self) -> float:
        """Seconds left: everything since the start counts, and all cells of earlier runs."""
        minutes = self._request.budget
        if minutes is None:
            each = QUICK_MINUTES if self._request.quick else FULL_MINUTES
            minutes = each * self._subjects * len(self._threads())
        return minutes * 60 - self._before - (time.perf_counter() - self._start)

    def _price(self, one: Planned) -> float:
        known = self._prices.get((one.cell.compiler, one.priority is Priority.FIRST))
        if known is not None:
            return known
        first = self._prices.get((one.cell.compiler, True))
        base = first or PRICES.get(one.cell.compiler, USUAL_PRICE)
        return base * PRIORITY_SHARE.get(one.priority, 1.0)

    def _learn(self, one: Planned, outcome: Outcome) -> None:
        if outcome.outcome == "ok":
            key = (one.cell.compiler, one.priority is Priority.FIRST)
            self._prices[key] = max(outcome.seconds, self._prices.get(key, 0.0))


def _group(cell: Cell) -> tuple[str, str, int]:
    """What a failed first process stands for."""
    return cell.subject, cell.compiler, cell.threads


def label(cell: Cell) -> str:
    """A cell in words, for the progress line."""
    off = f" without {'+'.join(cell.off)}" if cell.off else ""
    return f"{short(cell.subject)} · {short(cell.compiler)}{off} · {cell.policy} · {cell.state}"
