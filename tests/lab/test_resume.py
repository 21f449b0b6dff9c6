"""A study that is killed goes on where it stopped: nothing lost but the cell in flight."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from breakeven.lab.records import Begin, Outcome
from breakeven.lab.store import Store
from conftest import planted, subject

KILLS = 20
LONGEST_SECONDS = 14.0
"""A study loads its subject for some 7 s before its first cell: kills fall before and within."""


def command(out: Path, *more: str) -> list[str]:
    names = ",".join(planted(name) for name in ("Identical", "Twice", "CannotCompile"))
    return [
        *(sys.executable, "-m", "breakeven.cli", "study", subject("two_milliseconds")),
        *("--compilers", names, "--experiments", "fusion", "--threads", "1", "--quick"),
        *("--out", str(out), "--budget", "60", *more),
    ]


def start(out: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(out, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def outcomes(out: Path) -> Counter[tuple[str, str]]:
    records = Store.open(out, write=False).records()
    return Counter((r.key, r.outcome) for r in records if isinstance(r, Outcome))


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the study alone; its measuring processes have to end by themselves."""
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    process = start(whole)
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()
    order = random.Random(20)
    kills = 0
    for _ in range(KILLS):
        process = start(torn)
        try:
            process.communicate(timeout=order.uniform(0.3, LONGEST_SECONDS))
        except subprocess.TimeoutExpired:
            kill_tree(process)
            kills += 1
    assert kills >= 5, "the moments have to fall into the study"
    process = start(torn)
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()
    assert outcomes(torn) == outcomes(whole), "each cell once, with the same outcome"
    begun = [r for r in Store.open(torn, write=False).records() if isinstance(r, Begin)]
    assert len(begun) > len(outcomes(torn)), "some cell was cut and begun again"


def test_a_second_study_on_the_folder_refuses(tmp_path: Path) -> None:
    out = tmp_path / "study"
    first = start(out)
    try:
        while not (out / "records.jsonl").exists():
            assert first.poll() is None
            time.sleep(0.05)
        second = start(out)
        _, error = second.communicate(timeout=60)
        assert second.returncode == 3
        assert str(first.pid) in error.decode()
        assert "Traceback" not in error.decode()
    finally:
        kill_tree(first)


def test_interrupted_by_the_user(tmp_path: Path) -> None:
    out = tmp_path / "study"
    process = start(out)
    while not (out / "records.jsonl").exists():
        time.sleep(0.05)
    time.sleep(3)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error.decode()
    assert "Run the same command again" in error.decode()
    assert "Traceback" not in error.decode()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive, "no measuring process is left behind"
