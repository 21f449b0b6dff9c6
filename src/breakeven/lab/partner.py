"""Eager in a process of its own, for compilers whose threads would disturb torch's.

The worker holds the other end of two pipes. Each side waits in a blocking read while the other
measures, so that only one thread pool is awake at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import msgspec
import torch

from breakeven.errors import SubjectError
from breakeven.lab import allocator, lifeline
from breakeven.lab.job import Job, decode_job, grad_mode
from breakeven.lab.measure import Here, Measured, Seeds, Shape, calibrate
from breakeven.lab.subjects import resolve
from breakeven.lab.subjects.subject import Size

CLOSE_SECONDS = 5
PARTNER_SEEDS = 1 << 40
"""Seeds of the partner start here; they never meet those of the worker."""


class Ask(msgspec.Struct, frozen=True):
    """Worker to partner: a block, a calibration (`shape` None) or, with `keep`, the allocator."""

    size: Size = {}
    shape: Shape | None = None
    keep: bool = False


class Reply(msgspec.Struct, frozen=True):
    """Partner to worker: exactly one field is set, or none for "done"."""

    measured: Measured | None = None
    shape: Shape | None = None
    error: str = ""


class There:
    """The worker's handle on its partner; a `measure.Side`."""

    def __init__(self, job_file: Path) -> None:
        theirs, self._write = os.pipe()
        self._read, answer = os.pipe()
        arguments = [str(job_file), str(theirs), str(answer), str(os.getpid())]
        command = [sys.executable, "-P", "-m", __name__, *arguments]
        self._process = subprocess.Popen(command, pass_fds=(theirs, answer))
        os.close(theirs)
        os.close(answer)
        self._lines = os.fdopen(self._read, "rb")

    def wait_ready(self) -> None:
        """Block until the partner has built its subject."""
        self._receive()

    def block(self, size: Size, _seed: int, shape: Shape) -> Measured:
        """Run one block over there; seeds are the partner's own."""
        reply = self._ask(Ask(size=size, shape=shape))
        assert reply.measured is not None
        return reply.measured

    def calibrate(self, size: Size) -> Shape:
        """How blocks of eager are to be cut at `size`."""
        reply = self._ask(Ask(size=size))
        assert reply.shape is not None
        return reply.shape

    def keep_freed_pages(self) -> None:
        """Switch the partner's allocator."""
        self._ask(Ask(keep=True))

    def close(self) -> None:
        """End the partner."""
        os.close(self._write)
        self._lines.close()
        try:
            self._process.wait(timeout=CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, ask: Ask) -> Reply:
        os.write(self._write, msgspec.json.encode(ask) + b"\n")
        return self._receive()

    def _receive(self) -> Reply:
        line = self._lines.readline()
        if not line:
            raise RuntimeError("the eager process beside this one has ended")
        reply = msgspec.json.decode(line, type=Reply)
        if reply.error:
            raise RuntimeError(f"eager failed in its own process: {reply.error}")
        return reply


def serve(job: Job, asks: IO[bytes], reply_fd: int) -> None:
    """Answer asks until the pipe closes."""
    torch.set_num_threads(job.cell.threads)
    subject = resolve.load(job.cell.subject, job.options)
    side, seeds = Here(subject, subject.model), Seeds(PARTNER_SEEDS)
    with grad_mode(subject.mode):
        _send(reply_fd, Reply())
        for line in asks:
            ask = msgspec.json.decode(line, type=Ask)
            try:
                _send(reply_fd, _answer(ask, side, seeds))
            except Exception as error:
                _send(reply_fd, Reply(error=f"{type(error).__name__}: {error}"))


def _answer(ask: Ask, side: Here, seeds: Seeds) -> Reply:
    if ask.keep:
        allocator.keep_freed_pages()
        return Reply()
    if ask.shape is None:
        return Reply(shape=calibrate(side, ask.size, seeds))
    calls = ask.shape.warm + ask.shape.samples * ask.shape.batch
    return Reply(measured=side.block(ask.size, seeds.take(calls), ask.shape))


def _send(fd: int, reply: Reply) -> None:
    os.write(fd, msgspec.json.encode(reply) + b"\n")


def main() -> None:
    """Entry of `python -m breakeven.lab.partner JOB ASK_FD REPLY_FD PARENT`."""
    lifeline.hold(int(sys.argv[4]))
    job = decode_job(Path(sys.argv[1]).read_bytes())
    ask_fd, reply_fd = int(sys.argv[2]), int(sys.argv[3])
    try:
        serve(job, os.fdopen(ask_fd, "rb"), reply_fd)
    except SubjectError as error:
        _send(reply_fd, Reply(error=str(error)))
    finally:
        os._exit(0)  # a subject's own threads must not keep this process


if __name__ == "__main__":
    main()
