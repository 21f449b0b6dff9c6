"""The study's side of `describe`: what is this subject, asked of a process of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from breakeven import knobs
from breakeven.errors import SubjectError
from breakeven.lab import lifeline
from breakeven.lab.describe import Facts, Question
from breakeven.lab.process import last_words

DESCRIBE_SECONDS = 300


def ask(question: Question, folder: Path) -> Facts:
    """Run `describe` in a process of its own."""
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(dir=folder) as home:
        (Path(home) / "tmp").mkdir()
        file = Path(home) / "question.json"
        file.write_bytes(msgspec.json.encode(question))
        log = folder / "logs" / "describe.log"
        arguments = [str(file), str(write), str(os.getpid())]
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "breakeven.lab.describe", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=knobs.worker_environment(home, question.threads, {}),
                pass_fds=(write,),
                start_new_session=True,
            )
        os.close(write)
        try:
            answer = _read_all(read, DESCRIBE_SECONDS)
        finally:
            lifeline.end(child)
        if answer:
            return msgspec.json.decode(answer, type=Facts)
    raise SubjectError(
        "A subject has to run in eager PyTorch before a compiler is tried on it",
        f"The process that loaded {question.subject} ended without an answer: {last_words(log)}",
        "Run the model by itself, mend it and try again",
    )


def _read_all(fd: int, seconds: float) -> bytes:
    """Everything from a pipe until its end; nothing where that takes longer than `seconds`."""
    end = time.perf_counter() + seconds
    chunks: list[bytes] = []
    with os.fdopen(fd, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.perf_counter()))
            if not ready:
                return b""
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
