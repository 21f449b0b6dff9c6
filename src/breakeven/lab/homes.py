"""The private folders in which a cell finds what its state promises, and nothing else.

machine-cold: an empty folder. toolchain-warm: a copy of a template in which the compiler has made
its own headers and probes on an unrelated function. disk-warm: the folder that an earlier cell of
the same subject, compiler and condition has left.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from breakeven import knobs
from breakeven.errors import StoreError
from breakeven.lab import lifeline
from breakeven.lab.compilers import registry
from breakeven.lab.records import Cell

WARM_SECONDS = 300


class Homes:
    """Makes, keeps and removes the folders under `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def make(self, cell: Cell) -> Path:
        """The folder for a process of `cell`, in the state that the cell names.

        Raises:
            StoreError: the folder cannot be written.
        """
        try:
            if cell.state == "disk-warm":
                return self.filled(cell)
            home = self._fresh(cell)
            if cell.state == "toolchain-warm":
                template = self.toolchain(cell)
                shutil.copytree(template, home, dirs_exist_ok=True, copy_function=_link)
            return home
        except OSError as error:
            raise StoreError(
                "A study needs room for the private folders of its processes",
                f"{self._root} cannot be written: {error.strerror or error}",
                "Free some space or choose another folder with --out",
            ) from error

    def filled(self, cell: Cell) -> Path:
        """Where a finished cell of this subject, compiler and condition has left its caches."""
        return self._root / f"disk-{_condition(cell)}"

    def is_filled(self, cell: Cell) -> bool:
        """Whether a disk-warm process of `cell` would find caches."""
        return self.filled(cell).is_dir()

    def leave(self, cell: Cell, home: Path, *, keep: bool) -> None:
        """After a process has ended: keep its caches for disk-warm ones, or remove them."""
        kept = self.filled(cell)
        if home == kept:
            return
        if keep and not kept.exists():
            home.rename(kept)
        else:
            shutil.rmtree(home, ignore_errors=True)

    def toolchain(self, cell: Cell) -> Path:
        """The template of a cell's compiler, made on first use by compiling an unrelated function.

        Techniques that need a toolchain of their own have a template of their own. A warm-up that
        fails leaves an empty template: the cell then pays for the toolchain, as its phases show.
        """
        off = sorted(set(cell.off) & registry.get(cell.compiler).own_toolchain)
        name = _name("-".join([cell.compiler, *off]))
        template = self._root / f"toolchain-{name}"
        if template.is_dir():
            return template
        building = self._root / f"building-{name}"
        shutil.rmtree(building, ignore_errors=True)
        (building / "tmp").mkdir(parents=True)
        warm_up(
            [sys.executable, "-P", "-m", "breakeven.lab.warmup", cell.compiler, *off],
            knobs.worker_environment(str(building), cell.threads, {}),
        )
        building.rename(template)
        return template

    def clear(self) -> None:
        """Remove everything; a later study makes it anew."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _fresh(self, cell: Cell) -> Path:
        home = self._root / f"cell-{hashlib.sha256(cell.key.encode()).hexdigest()[:12]}"
        shutil.rmtree(home, ignore_errors=True)
        (home / "tmp").mkdir(parents=True)
        return home


def warm_up(command: list[str], environment: Mapping[str, str]) -> None:
    """Run a command to its end, or for `WARM_SECONDS`; whatever it started ends with it."""
    child = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        child.wait(WARM_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        lifeline.end(child)


def _condition(cell: Cell) -> str:
    parts = (cell.subject, cell.compiler, cell.policy, cell.off, cell.threads)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _name(compiler: str) -> str:
    if "/" not in compiler and ":" not in compiler:
        return compiler
    return hashlib.sha256(compiler.encode()).hexdigest()[:12]


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
