"""The raw records of a study in a folder: appended as they come, never changed.

A record is one line of JSON in `records.jsonl`; it exists once its newline is on disk. One study
writes a folder at a time (`study.lock`); reading needs no lock and may go on meanwhile.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import filelock
import msgspec

from breakeven.errors import StoreError
from breakeven.lab.records import (
    SCHEMA,
    AnyRecord,
    Begin,
    Cell,
    CellRecord,
    Header,
    Outcome,
    encode,
)

RECORDS, LOCK, OWNER = "records.jsonl", "study.lock", "study.pid"
DURABLE = (Header, Begin, Outcome)
"""Records after which the file is forced to disk; the rest reach the kernel at once."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_decoder = msgspec.json.Decoder(AnyRecord, strict=False)
"""Not strict, so that the strings that stand for NaN and infinities come back as numbers."""


class CellRecords(msgspec.Struct, frozen=True):
    """All records between `Begin` and `Outcome` of the latest attempt of a cell that ended."""

    cell: Cell
    attempt: int
    records: list[CellRecord]
    outcome: Outcome


class Store:
    """The records of one folder; see `Store.open`.

    `warnings` tells in words what had to be left out while reading.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / RECORDS
        self.warnings: list[str] = []
        self._lock: filelock.FileLock | None = None
        self._file: int | None = None
        self._attempts: dict[str, int] = {}
        self._damaged_at: int | None = None
        self._turn = threading.Lock()

    @classmethod
    def open(cls, folder: Path, *, write: bool) -> Store:
        """The store of `folder`; for writing the folder is made and locked, a torn tail cut off.

        Raises:
            StoreError: no such study (reading), another study is writing, the folder cannot be
                written, or its records are damaged or of a newer version.
        """
        store = cls(Path(folder))
        if not write:
            store._must_exist()
            return store
        try:
            store._open_for_writing()
        except OSError as problem:
            store.close()
            raise _unusable(store.folder, problem) from problem
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def forget(cls, folder: Path) -> None:
        """Remove the records of a folder for good; everything else in it stays.

        Raises:
            StoreError: a study is writing there, or the file cannot be removed.
        """
        path = Path(folder) / RECORDS
        if not path.exists():
            return
        store = cls(Path(folder))
        try:
            store._take()
            path.unlink()
        except OSError as problem:
            raise _unusable(store.folder, problem) from problem
        finally:
            store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the folder back; records stay readable through this object."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._lock is not None and self._lock.is_locked:
            with suppress(OSError):
                (self.folder / OWNER).unlink()
            self._lock.release()
        self._lock = None

    def append(self, record: AnyRecord) -> None:
        """Write one record whole or not at all.

        Raises:
            StoreError: the disk is full or failing; everything written before is still there.
        """
        line = encode(record) + b"\n"
        with self._turn:
            if self._file is None:
                raise StoreError(
                    "Records are written to a store that is open for writing.",
                    f"{self.path} is open for reading or closed already.",
                    "Open it with Store.open(folder, write=True).",
                )
            try:
                self._mend()
                self._write(self._file, line)
                if isinstance(record, DURABLE):
                    os.fsync(self._file)
            except OSError as problem:
                raise self._unwritten(problem) from problem
        if isinstance(record, Begin):
            self._attempts[record.key] = max(record.attempt, self._attempts.get(record.key, 0))

    def records(self) -> Iterator[AnyRecord]:
        """Every whole record, oldest first; a torn last line is left out with a warning.

        Raises:
            StoreError: a line that is not the last cannot be read, or a newer version wrote it.
        """
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.endswith(b"\n"):
                        self._warn_torn(number, len(line))
                        return
                    if line.strip():
                        yield self._decode(number, line)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise _unusable(self.folder, problem) from problem

    def headers(self) -> list[Header]:
        """One for each run of the study in this folder, oldest first."""
        return [record for record in self.records() if isinstance(record, Header)]

    def finished(self) -> dict[str, Outcome]:
        """The last outcome of each cell that has ended, by key."""
        return {record.key: record for record in self.records() if isinstance(record, Outcome)}

    def cells(self) -> list[CellRecords]:
        """Cells that have ended, in the order of their ends; of several attempts the latest ended.

        Records of a process that was killed before its outcome are not among them.
        """
        running: dict[tuple[str, int], tuple[Cell, list[CellRecord]]] = {}
        ended: dict[str, CellRecords] = {}
        for record in self.records():
            if isinstance(record, Begin):
                running[record.key, record.attempt] = (record.cell, [])
            elif isinstance(record, CellRecord):
                begun = running.get((record.key, record.attempt))
                if begun is None:
                    self._warn(f"A {type(record).__name__} of {record.key} has no beginning.")
                elif isinstance(record, Outcome):
                    earlier = ended.pop(record.key, None)
                    whole = CellRecords(begun[0], record.attempt, begun[1], record)
                    newer = earlier is None or earlier.attempt <= record.attempt
                    ended[record.key] = whole if newer or earlier is None else earlier
                else:
                    begun[1].append(record)
        return list(ended.values())

    def next_attempt(self, key: str) -> int:
        """1 for a cell that was never begun, else one more than its latest attempt."""
        if self._file is None:
            self._attempts = _attempts(self.records())
        return self._attempts.get(key, 0) + 1

    def _must_exist(self) -> None:
        found = f"There is no file {self.path}"
        try:
            with self.path.open("rb") as file:
                if file.readline().endswith(b"\n"):
                    return
            found = f"{self.path} holds no record yet"
        except FileNotFoundError:
            pass
        except OSError as problem:
            raise _unusable(self.folder, problem) from problem
        raise StoreError(
            "The folder of a study holds its records.",
            found,
            "Name the folder that --out named, or run `breakeven study` first.",
        )

    def _open_for_writing(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take()
        new = not self.path.exists()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self.path, flags, 0o644)
        try:
            self._attempts = _attempts(self.records())
            _cut_torn_tail(self.path, file)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        if new:
            _sync_folder(self.folder)

    def _take(self) -> None:
        """Lock the folder, and leave this process's number for whom it is refused."""
        lock = filelock.FileLock(self.folder / LOCK, timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise self._taken() from None
        self._lock = lock
        (self.folder / OWNER).write_text(f"{os.getpid()}\n")

    def _taken(self) -> StoreError:
        pid = ""
        with suppress(OSError):
            pid = (self.folder / OWNER).read_text().strip()
        holder = f"the process {pid}" if pid else "another process"
        return StoreError(
            "One study at a time writes to a folder.",
            f"{self.folder} is in use by {holder}.",
            "Wait until it has ended, stop it, or give another folder with --out.",
        )

    def _write(self, file: int, line: bytes) -> None:
        """All of `line`, or what was there before it."""
        start = os.fstat(file).st_size
        rest = line
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except BaseException:
            if rest:
                self._damaged_at = start
                with suppress(OSError):
                    self._mend()
            raise

    def _mend(self) -> None:
        """Cut a half-written line off, so that the next one starts afresh."""
        if self._damaged_at is not None and self._file is not None:
            os.ftruncate(self._file, self._damaged_at)
            self._damaged_at = None

    def _unwritten(self, problem: OSError) -> StoreError:
        full = problem.errno in FULL
        why = "the disk is full or a quota is reached" if full else problem.strerror or str(problem)
        return StoreError(
            "Each record of a study is written to disk before the study goes on.",
            f"{self.path} could not be written ({why}); all earlier records are kept.",
            "Make room there and give the same command again: it goes on where it stopped."
            if full
            else "Check that disk, and give the same command again: it goes on where it stopped.",
        )

    def _decode(self, number: int, line: bytes) -> AnyRecord:
        try:
            record: AnyRecord = _decoder.decode(line)
        except msgspec.MsgspecError as problem:
            self._refuse_newer(line)
            raise StoreError(
                "Every line of a study's records is one JSON record.",
                f"Line {number} of {self.path} cannot be read ({problem}).",
                f"Restore the file, or take the line out with `sed -i {number}d {self.path}`: "
                "the cell it belonged to is then judged by what is left of it.",
            ) from problem
        if isinstance(record, Header):
            self._refuse_newer(line)
        return record

    def _refuse_newer(self, line: bytes) -> None:
        found: Any = None
        with suppress(msgspec.MsgspecError):
            found = msgspec.json.decode(line)
        schema = found.get("schema") if isinstance(found, dict) else None
        if isinstance(schema, int) and schema > SCHEMA:
            raise StoreError(
                f"This version of Breakeven reads records up to schema {SCHEMA}.",
                f"{self.path} was written by a newer version, with schema {schema}.",
                "Update Breakeven, or start a new study in another folder.",
            )

    def _warn_torn(self, number: int, size: int) -> None:
        self._warn(
            f"The last line of {self.path} (line {number}, {size} bytes) was cut off in the "
            "middle of writing and is left out."
        )

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def _attempts(records: Iterator[AnyRecord]) -> dict[str, int]:
    latest: dict[str, int] = {}
    for record in records:
        if isinstance(record, Begin):
            latest[record.key] = max(record.attempt, latest.get(record.key, 0))
    return latest


def _cut_torn_tail(path: Path, file: int) -> None:
    """Cut the file behind its last newline."""
    with path.open("rb") as reader:
        end = reader.seek(0, os.SEEK_END)
        keep = end
        while keep > 0:
            start = max(0, keep - (1 << 16))
            reader.seek(start)
            newline = reader.read(keep - start).rfind(b"\n")
            if newline >= 0:
                keep = start + newline + 1
                break
            keep = start
    if keep < end:
        os.ftruncate(file, keep)
        os.fsync(file)


def _sync_folder(folder: Path) -> None:
    """Make the new file's name durable; some file systems do not know how."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _unusable(folder: Path, problem: OSError) -> StoreError:
    full = problem.errno in FULL
    return StoreError(
        "A study needs a folder that it may make, read and write.",
        f"{problem.filename or folder} cannot be used ({problem.strerror or problem}).",
        "Make room there, or give another folder with --out."
        if full
        else "Give another folder with --out, or change its permissions.",
    )
