"""A cell finds what its state promises and nothing else (cases 36 and 40)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from breakeven import knobs
from breakeven.lab.homes import Homes
from breakeven.lab.records import Cell

CELL = Cell(subject="s", compiler="eager", threads=1)


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_machine_cold_is_empty_even_after_a_cut_attempt(tmp_path: Path) -> None:
    homes = Homes(tmp_path)
    home = homes.make(CELL)
    (home / "tmp" / "left").write_text("from a killed process")
    assert files(homes.make(CELL)) == []


def test_disk_warm_is_what_an_equal_cell_has_left(tmp_path: Path) -> None:
    homes = Homes(tmp_path)
    warm = msgspec.structs.replace(CELL, state="disk-warm", repetition=2)
    assert not homes.is_filled(warm)
    home = homes.make(CELL)
    (home / "cache").mkdir()
    (home / "cache" / "artifact").write_text("object code")
    homes.leave(CELL, home, keep=True)
    assert homes.is_filled(warm)
    assert files(homes.make(warm)) == ["cache/artifact"]
    for other in ({"policy": "dynamic"}, {"compiler": "dynamo"}, {"subject": "t"}, {"threads": 2}):
        assert not homes.is_filled(msgspec.structs.replace(warm, **other)), other


def test_a_failed_cell_leaves_nothing(tmp_path: Path) -> None:
    homes = Homes(tmp_path)
    home = homes.make(CELL)
    homes.leave(CELL, home, keep=False)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_inherits_no_setting_that_changes_what_it_measures(monkeypatch) -> None:
    for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_FREEZING", "MALLOC_ARENA_MAX", "KMP_BLOCKTIME"):
        monkeypatch.setenv(name, "7")
    environment = knobs.worker_environment("/home/x", 2, {})
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["TMPDIR"].startswith("/home/x")
    assert "TORCHINDUCTOR_FREEZING" not in environment
    assert "MALLOC_ARENA_MAX" not in environment
    assert "KMP_BLOCKTIME" not in environment
