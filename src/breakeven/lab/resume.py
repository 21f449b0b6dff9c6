"""May a study go on in a folder that holds records already?

Samples of another machine, of other versions or of a model that has changed since must not be mixed
with new ones without a word.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from breakeven.errors import StoreError
from breakeven.lab.records import Header
from breakeven.lab.store import Store
from breakeven.lab.subjects.resolve import Options

OWNED_FOLDERS = ("logs", "homes")
"""What a study leaves beside its records."""
WHOLE_FILE_BYTES = 64 << 20


def check(folder: Path, headers: list[Header], environment: dict[str, Any]) -> None:
    """Refuse to mix machines or versions.

    Raises:
        StoreError: the folder was measured on another machine or with other package versions.
    """
    if not headers:
        return
    before = headers[-1].environment
    if before.get("machine") != environment.get("machine"):
        raise StoreError(
            "One folder holds measurements of one machine",
            f"{folder} was measured on another one ({before.get('cpu')})",
            "Choose another folder with --out, or start over with --fresh",
        )
    old, new = before.get("packages", {}), environment.get("packages", {})
    changed = [name for name in {*old, *new} if old.get(name) != new.get(name)]
    if changed:
        listed = ", ".join(f"{n} {old.get(n)} -> {new.get(n)}" for n in sorted(changed))
        raise StoreError(
            "One folder holds measurements of one set of versions",
            f"Since {folder} was measured these have changed: {listed}",
            "Choose another folder with --out and use `breakeven compare`, or give --fresh",
        )


def check_subject(folder: Path, headers: list[Header], subject: str, fingerprint: str) -> None:
    """Refuse to mix two versions of a subject.

    Raises:
        StoreError: the subject's files have changed since they were measured.
    """
    for header in headers:
        known = header.plan.get("facts", {}).get(subject, {}).get("fingerprint", "")
        if known and fingerprint and known != fingerprint:
            raise StoreError(
                "One folder holds measurements of one version of a subject",
                f"{subject} has changed since {folder} was measured",
                "Choose another folder with --out, or start over with --fresh",
            )


def fingerprint(spec: str, options: Options) -> str:
    """Content of the files that a subject is made from, as 16 hex digits; empty for built-in ones.

    Large files count by size and time of change.
    """
    if spec.startswith("pickle:"):
        return ""  # cloudpickle names the classes that it sends anew in each process
    digest = hashlib.sha256(repr(sorted(options.overrides.items())).encode())
    found = False
    for place in (spec, spec.partition(":")[2], spec.rpartition(":")[0], options.inputs):
        path = Path(place)
        files = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
        for file in files if place else []:
            if file.is_file() and not file.name.startswith("."):
                found = True
                digest.update(_content(file))
    return digest.hexdigest()[:16] if found else ""


def forget(folder: Path) -> None:
    """Remove the records, logs and caches that studies have left in `folder`, and nothing else.

    Raises:
        StoreError: a study is writing there, or the records cannot be removed.
    """
    Store.forget(folder)
    for name in OWNED_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)


def _content(file: Path) -> bytes:
    status = file.stat()
    if status.st_size > WHOLE_FILE_BYTES:
        return f"{file.name} {status.st_size} {status.st_mtime_ns}".encode()
    return file.name.encode() + file.read_bytes()
