"""The store against the real thing: writers killed at random moments, and disks that fill up."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from breakeven.errors import StoreError
from breakeven.lab import records as r
from breakeven.lab.store import RECORDS, Store

WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from breakeven.errors import StoreError
    from breakeven.lab.store import Store
    from breakeven.lab.records import Begin, Block, Cell, Outcome

    def run(folder, cells):
        with Store.open(folder, write=True) as store:
            finished = store.finished()
            sys.stdout.write("open\\n")
            sys.stdout.flush()
            for number in range(cells):
                cell = Cell(subject="s", compiler="c", repetition=number)
                if cell.key in finished:
                    continue
                attempt = store.next_attempt(cell.key)
                mine = dict(key=cell.key, attempt=attempt)
                store.append(Begin(**mine, cell=cell, time=0.0))
                for pair in range(4):
                    store.append(Block(**mine, role="eager", allocator="kept", pair=pair,
                                       seconds=[float(number)] * 3000))
                store.append(Outcome(**mine, outcome="ok"))

    try:
        run(Path(sys.argv[1]), int(sys.argv[2]))
    except StoreError as error:
        sys.stderr.write(str(error))
        sys.exit(error.exit_code)
""")

CELLS = 300
KILLS = 20


def writer(folder: Path, cells: int = CELLS) -> list[str]:
    return [sys.executable, "-c", WRITER, str(folder), str(cells)]


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def check(folder: Path) -> dict[str, r.Outcome]:
    """Whatever is there is whole: every finished cell has all its records, and none twice."""
    store = Store.open(folder, write=False)
    cells = store.cells()
    for cell in cells:
        assert [block.pair for block in cell.records if isinstance(block, r.Block)] == [0, 1, 2, 3]
        assert all(
            block.seconds == [float(cell.cell.repetition)] * 3000
            for block in cell.records
            if isinstance(block, r.Block)
        )
    assert len({cell.cell.key for cell in cells}) == len(cells)
    assert len(store.warnings) <= 1
    return store.finished()


def test_a_writer_killed_at_twenty_random_moments_loses_one_cell_each_time(tmp_path: Path) -> None:
    chance = random.Random(0)
    before: dict[str, r.Outcome] = {}
    mid_write = 0
    for _ in range(KILLS):
        process = subprocess.Popen(writer(tmp_path), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        time.sleep(chance.uniform(0.0, 0.06))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        after = check(tmp_path) if (tmp_path / RECORDS).stat().st_size else {}
        assert before.items() <= after.items()
        begun = [x for x in Store.open(tmp_path, write=False).records() if isinstance(x, r.Begin)]
        mid_write += len(begun) - len(after) > 0
        before = after
    subprocess.run(writer(tmp_path), check=True, capture_output=True)
    finished = check(tmp_path)
    assert len(finished) == CELLS
    assert all(outcome.outcome == "ok" for outcome in finished.values())
    repeated = [x for x in Store.open(tmp_path, write=False).records() if isinstance(x, r.Outcome)]
    assert len(repeated) == CELLS, "a cell that had ended was run again"
    assert mid_write, "no kill met a cell in flight: the test tests nothing"


def limit(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [20_000, 20_001, 137_000, 300_123])
def test_a_file_that_may_grow_no_further(tmp_path: Path, size: int) -> None:
    told = run(writer(tmp_path), preexec_fn=lambda: limit(size))
    assert told.returncode == StoreError.exit_code
    assert "disk is full" in told.stderr and "earlier records are kept" in told.stderr
    content = (tmp_path / RECORDS).read_bytes()
    assert len(content) <= size and content.endswith(b"\n")
    check(tmp_path)
    subprocess.run(writer(tmp_path, 30), check=True, capture_output=True)
    assert len(check(tmp_path)) == 30


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or run(mount).returncode:
        pytest.skip("a file system can be mounted by root alone")
    try:
        told = run(writer(disk / "study"))
        assert told.returncode == StoreError.exit_code
        assert "disk is full" in told.stderr
        assert (disk / "study" / RECORDS).read_bytes().endswith(b"\n")
        kept = check(disk / "study")
        assert len(kept) >= 1
        again = run(writer(disk / "study"))
        assert again.returncode == StoreError.exit_code
        assert check(disk / "study") == kept
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
