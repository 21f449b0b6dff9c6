"""The study's side of one cell: start the process, store what it says, stop it when it must.

The child leads a process group of its own, so that compilers' helpers (g++, worker pools, the
eager partner) end with it. Between records this side sleeps; it looks at memory often only while
the child compiles, never within a timed block.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import msgspec

from breakeven.lab import lifeline, procfs
from breakeven.lab.job import Job, Stage, decode_message, encode
from breakeven.lab.records import AnyRecord, MemoryRecord, Outcome, OutcomeKind, Timing

COMPILE_POLL_SECONDS = 0.4
QUIET_POLL_SECONDS = 2.0
WATCHED = ("compile", "inprocess")
TAIL_BYTES = 2000


class Limits(msgspec.Struct, frozen=True):
    """When a cell is stopped: `seconds` of wall time, `memory` bytes of its process tree."""

    seconds: float
    memory: int


class Run:
    """One child process and what it has said so far."""

    def __init__(
        self,
        job: Job,
        job_file: Path,
        log_file: Path,
        environment: Mapping[str, str],
        limits: Limits,
        on_record: Callable[[AnyRecord], None],
        on_stage: Callable[[str], None],
    ) -> None:
        self._job, self._limits = job, limits
        self._on_record, self._on_stage = on_record, on_stage
        self._log_file = log_file
        self._outcome: Outcome | None = None
        self._stage, self._before, self._peak = "start", 0, 0
        job_file.write_bytes(encode(job))
        self._read, write = os.pipe()
        arguments = [str(job_file), str(write), str(os.getpid())]
        command = [sys.executable, "-P", "-m", "breakeven.lab.worker", *arguments]
        self._start = time.perf_counter()
        with log_file.open("wb") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=(write,),
                start_new_session=True,
            )
        os.close(write)

    def finish(self) -> Outcome:
        """Follow the child to its end and return its outcome, which is not yet stored."""
        stopped: tuple[OutcomeKind, str] | None = None
        try:
            with os.fdopen(self._read, "rb", buffering=0) as pipe:
                stopped = self._follow(pipe)
        finally:
            status = lifeline.end(self._child)
        self._remember_memory()
        seconds = time.perf_counter() - self._start
        if stopped is None and self._outcome is not None:
            return msgspec.structs.replace(self._outcome, seconds=seconds)
        kind, detail = stopped or self._death(status)
        return Outcome(
            key=self._job.cell.key,
            attempt=self._job.attempt,
            outcome=kind,
            detail=detail,
            seconds=seconds,
        )

    def _follow(self, pipe: IO[bytes]) -> tuple[OutcomeKind, str] | None:
        selector = selectors.DefaultSelector()
        selector.register(pipe, selectors.EVENT_READ)
        pending = b""
        last = 0.0
        while True:
            poll = COMPILE_POLL_SECONDS if self._stage in WATCHED else QUIET_POLL_SECONDS
            if selector.select(poll):
                chunk = os.read(pipe.fileno(), 1 << 16)
                if not chunk:
                    return None
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._hear(line)
            elif self._child.poll() is not None and not selector.select(0):
                return None
            if self._outcome is not None:
                return None
            if time.perf_counter() - last < poll:
                continue
            last = time.perf_counter()
            stopped = self._check()
            if stopped is not None:
                return stopped

    def _hear(self, line: bytes) -> None:
        message = decode_message(line)
        if isinstance(message, Stage):
            self._remember_memory()
            self._stage = message.name
            self._before = self._peak = self._memory() if message.name in WATCHED else 0
            self._on_stage(message.name)
        elif isinstance(message, Outcome):
            self._outcome = message
        else:
            if isinstance(message, Timing) and message.name == "import":
                self._on_record(
                    msgspec.structs.replace(
                        message, name="process", seconds=time.perf_counter() - self._start
                    )
                )
            self._on_record(message)

    def _memory(self) -> int:
        if self._stage in WATCHED:
            return procfs.tree_pss(self._child.pid)
        return procfs.tree_resident(self._child.pid)

    def _check(self) -> tuple[OutcomeKind, str] | None:
        used = self._memory()
        self._peak = max(self._peak, used)
        if used > self._limits.memory:
            limit = self._limits.memory / 2**30
            return "out of memory", f"the process tree held more than {limit:.1f} GiB"
        if time.perf_counter() - self._start > self._limits.seconds:
            return "timeout", f"no end after {self._limits.seconds:.0f} s, in part {self._stage!r}"
        return None

    def _remember_memory(self) -> None:
        if self._stage not in WATCHED or not self._peak:
            return
        self._on_record(
            MemoryRecord(
                key=self._job.cell.key,
                attempt=self._job.attempt,
                name=self._stage,
                before=self._before,
                peak=self._peak,
            )
        )
        self._peak = 0

    def _death(self, status: int) -> tuple[OutcomeKind, str]:
        words = f"in part {self._stage!r}"
        if status < 0:
            words = f"killed by {signal.Signals(-status).name} {words}"
        else:
            words = f"left with status {status} {words} without a result"
        if status == -signal.SIGKILL:
            return "out of memory", f"{words}; the system kills so when memory runs out"
        tail = last_words(self._log_file)
        return "crash", f"{words}; last words: {tail}" if tail else words


def last_words(log_file: Path) -> str:
    """The last line that a process printed, at most 300 characters."""
    with contextlib.suppress(OSError), log_file.open("rb") as log:
        log.seek(max(0, log_file.stat().st_size - TAIL_BYTES))
        lines = log.read().decode(errors="replace").strip().splitlines()
        if lines:
            return lines[-1].strip()[:300]
    return ""
