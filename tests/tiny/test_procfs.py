"""Readings of /proc: right on this process and its children, zero where nothing can be read."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from breakeven.lab import procfs

GONE = 2**22 + 1
"""Above the largest pid that Linux gives."""
PER_PROCESS = (
    procfs.cpu_seconds,
    procfs.run_queue_wait,
    procfs.minor_faults,
    procfs.resident,
    procfs.peak_rss,
    procfs.pss,
    procfs.tree_pss,
    procfs.tree_resident,
)


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that says "ready" before it goes on with `code`, killed at the end."""
    text = f"import os, sys, time\nprint('ready', flush=True)\n{code}"
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_processor_time_is_exact() -> None:
    mine = procfs.cpu_seconds(os.getpid())
    assert mine == pytest.approx(time.process_time(), abs=0.01)
    spin(0.03)
    assert procfs.cpu_seconds(os.getpid()) - mine == pytest.approx(0.03, abs=0.01)


def test_processor_time_without_a_clock_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: int) -> float:
        raise OSError

    exact = procfs.cpu_seconds(os.getpid())
    with monkeypatch.context() as patched:
        patched.setattr(time, "clock_gettime", none)
        assert procfs.cpu_seconds(os.getpid()) == pytest.approx(exact, abs=0.05)
        assert procfs.cpu_seconds(GONE) == 0.0


def test_others_see_a_busy_child_and_not_one_of_ours() -> None:
    with child("while True: pass") as busy:
        apart, ours = [os.getpid()], [os.getpid(), busy.pid]
        start = procfs.others_cpu_seconds(apart), procfs.others_cpu_seconds(ours)
        used = procfs.cpu_seconds(busy.pid)
        time.sleep(0.3)
        used = procfs.cpu_seconds(busy.pid) - used
        end = procfs.others_cpu_seconds(apart), procfs.others_cpu_seconds(ours)
    assert used > 0.02
    assert end[0] - start[0] >= used - 0.03
    assert (end[0] - start[0]) - (end[1] - start[1]) == pytest.approx(used, abs=0.03)


def test_own_work_does_not_count_as_that_of_others() -> None:
    """Whatever else runs here, two cores cannot hold more than what ours leaves of them."""
    reading = procfs.Reading()
    start = time.process_time()
    spin(0.2)
    own = time.process_time() - start
    wall, faults, others, waited = reading.since()
    assert wall >= own > 0.19
    assert others <= wall * len(procfs.allowed_cores()) - own + 0.03
    assert faults >= 0 and 0.0 <= waited <= wall


def test_waiting_for_a_processor_is_seen() -> None:
    core = min(procfs.allowed_cores())
    code = f"os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with child(code) as one, child(code) as two:
        time.sleep(0.1)
        start = [procfs.run_queue_wait(p.pid) for p in (one, two)]
        time.sleep(0.3)
        waited = [procfs.run_queue_wait(p.pid) - s for p, s in zip((one, two), start, strict=True)]
    assert sum(waited) > 0.15


def test_waiting_counts_every_thread() -> None:
    own = os.getpid()
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        tasks = list(Path("/proc/self/task").iterdir())
        total = sum(int((t / "schedstat").read_text().split()[1]) for t in tasks)
        assert len(tasks) >= 4
        assert procfs.run_queue_wait(own) * 1e9 >= total
    finally:
        stop.set()


def test_waiting_is_the_second_figure_of_every_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thread, text in (("7", "500 1500000000 3"), ("8", "900 250000000 1"), ("9", "")):
        folder = tmp_path / "7" / "task" / thread
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(text)
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    assert procfs.run_queue_wait(7) == pytest.approx(1.75)


def test_page_faults_are_counted_alike_from_inside_and_outside() -> None:
    pages = 500
    before = procfs.minor_faults(os.getpid())
    with mmap.mmap(-1, pages * procfs.PAGE) as fresh:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            fresh.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            fresh[page * procfs.PAGE] = 1
    inside = procfs.minor_faults(os.getpid())
    assert pages <= inside - before < 2 * pages
    outside = int(procfs._stat(os.getpid())[7])
    assert outside == pytest.approx(inside, abs=50)


def test_peak_memory_can_be_started_anew() -> None:
    size = 64 << 20
    base = procfs.resident()
    block = bytearray(size)
    block[:: procfs.PAGE] = b"x" * len(block[:: procfs.PAGE])
    assert procfs.resident() >= base + size * 0.9
    assert procfs.peak_rss() >= base + size * 0.9
    del block
    assert procfs.reset_peak()
    assert procfs.peak_rss() < base + size * 0.5


def test_a_tree_holds_children_of_children() -> None:
    hold = "import time; block = b'x' * (40 << 20); print('up', flush=True); time.sleep(60)"
    code = (
        "import subprocess\n"
        f"p = subprocess.Popen([sys.executable, '-c', {hold!r}], stdout=subprocess.PIPE)\n"
        "p.stdout.readline(); print('grown', p.pid, flush=True); time.sleep(60)"
    )
    with child(code) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline().split()[1])
        assert procfs.descendants(parent.pid) == [grandchild]
        assert {parent.pid, grandchild} <= set(procfs.descendants(os.getpid()))
        assert procfs._scanned_descendants(parent.pid) == [grandchild]
        assert set(procfs.group(parent.pid)) == {parent.pid, grandchild}
        own = procfs.pss(parent.pid)
        assert procfs.tree_pss(parent.pid) >= own + (40 << 20)
        assert procfs.tree_resident(parent.pid) >= procfs.resident(parent.pid) + (40 << 20)
        assert procfs.pss(parent.pid) <= procfs.resident(parent.pid)
    assert procfs.descendants(parent.pid) == []


def test_time_of_the_tree_keeps_ended_children() -> None:
    start = procfs.tree_cpu_seconds()
    code = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert procfs.tree_cpu_seconds() - start >= 0.18
    with child("while True: pass") as busy:
        start = procfs.tree_cpu_seconds()
        spun = procfs.cpu_seconds(busy.pid)
        time.sleep(0.1)
        spun = procfs.cpu_seconds(busy.pid) - spun
        assert procfs.tree_cpu_seconds() - start >= spun - 0.02


def test_age_of_a_process() -> None:
    code = "import time; time.sleep(0.2); from breakeven.lab.procfs import *; print(process_age())"
    start = time.perf_counter()
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.2 <= float(told.stdout) <= time.perf_counter() - start + 0.02


@pytest.mark.parametrize("read", PER_PROCESS, ids=lambda read: read.__name__)
def test_a_process_that_has_gone_reads_as_nothing(read: object) -> None:
    assert read(GONE) == 0  # type: ignore[operator]
    assert procfs.descendants(GONE) == [] and procfs.group(GONE) == []


def test_processes_that_vanish_meanwhile_do_no_harm() -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            subprocess.run(["true"], check=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            for read in PER_PROCESS:
                for pid in procfs.descendants(os.getpid()):
                    assert read(pid) >= 0
            procfs.tree_pss(os.getpid())
            procfs.group(os.getpgrp())
    finally:
        stop.set()
        thread.join()


def test_a_proc_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    own = os.getpid()
    assert procfs.others_cpu_seconds([own]) == 0.0
    assert procfs.run_queue_wait(own) == 0.0
    assert procfs.resident() == procfs.peak_rss() == procfs.tree_pss(own) == 0
    assert procfs.descendants(own) == [] and procfs.group(own) == []
    assert procfs.process_age() == 0.0 and procfs.reset_peak() is False
    wall, faults, others, waited = procfs.Reading().since()
    assert wall > 0 and faults >= 0 and (others, waited) == (0.0, 0.0)
    assert len(procfs.gaps()) == 4


@pytest.mark.parametrize(
    ("allowed", "idle"), [({0, 1, 2}, 30.7), ({0, 2}, 20.4), ({2}, 10.2), ({7}, None)]
)
def test_idle_time_of_the_processors_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: set[int], idle: float | None
) -> None:
    """The sum line is used where it stands for them all: it is rounded once only."""
    lines = ["cpu  1 2 3 3000 70 0 0 0 0 0"]
    lines += [f"cpu{core} 1 2 3 1000 20 0 0 0 0 0" for core in range(3)]
    (tmp_path / "stat").write_text("\n".join([*lines, "intr 1 2 3", "cpu9 1 1 1 9 9"]))
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    monkeypatch.setattr(procfs, "TICK", 100)
    monkeypatch.setattr(procfs, "allowed_cores", lambda: allowed)
    monkeypatch.setattr(time, "monotonic", lambda: 50.0)
    expected = 0.0 if idle is None else 50.0 * len(allowed) - idle
    assert procfs.machine_busy_seconds() == pytest.approx(expected)


def test_a_kernel_that_lists_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "_children_file", lambda pid: "/nowhere")
    with child("time.sleep(60)") as one:
        assert one.pid in procfs.descendants(os.getpid())


def test_names_of_processes_may_hold_anything(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(odd), "60"])
    try:
        assert int(procfs._stat(process.pid)[1]) == os.getpid()
        assert process.pid in procfs._scanned_descendants(os.getpid())
    finally:
        process.kill()
        process.wait()


def test_readings_are_cheap() -> None:
    """Half a millisecond each at most, with room for a loaded machine: the best of many."""
    own = os.getpid()
    for read in (
        procfs.Reading,
        lambda: procfs.others_cpu_seconds([own]),
        lambda: procfs.run_queue_wait(own),
        lambda: procfs.minor_faults(own),
        procfs.peak_rss,
        procfs.tree_cpu_seconds,
    ):
        times = []
        for _ in range(30):
            start = time.perf_counter()
            read()
            times.append(time.perf_counter() - start)
        assert min(times) < 0.5e-3
