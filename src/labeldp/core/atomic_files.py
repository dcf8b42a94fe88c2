"""What is written is whole or not there, and what takes long to make is made once."""

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from labeldp.core.errors import InputError


def check_writable(out: Path, *suffixes: str) -> None:
    """Say at once if `out` could not be written, before anything is spent on what would go there."""
    if out.exists():
        raise InputError(f"{out} exists: choose another path or remove it.")
    if suffixes and out.suffix not in suffixes:
        raise InputError(f"{out} must end in {' or '.join(suffixes)}.")
    folder = out.absolute().parent
    if not folder.is_dir():
        raise InputError(f"There is no folder {out.parent} to write {out.name} into.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"The folder {out.parent} cannot be written to.")


@contextmanager
def atomic_write(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """Give a path to write to (a file, or a folder to make), which becomes `out` only if all goes well.

    What is there already stays and is an error; if it is written `anew`, a file is replaced.
    """
    check = check_writable if not overwrite else lambda out: None
    check(out)
    try:
        with temporary_path(out) as partial:
            yield partial
            check(out)
            os.replace(partial, out)
    except OSError as problem:
        raise InputError(f"{out} cannot be written: {problem.strerror or problem}.") from None


@contextmanager
def temporary_path(out: Path) -> Iterator[Path]:
    """Give a path in the folder of `out` for an unfinished file or folder, and remove what is there at the end.

    Unfinished outputs of processes that were killed are removed, too. A process holds a lock on its own, which the
    operating system releases when the process ends, so that those of running processes stay.
    """
    _remove_abandoned(out)
    partial, lock = _lock_new_partial(out)
    try:
        yield partial
    finally:
        _remove(partial)
        _remove_lock(lock)


def _lock_new_partial(out: Path) -> tuple[Path, FileLock]:
    """Choose a name that no other process uses, and lock it."""
    while True:
        partial = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.partial")
        lock = _lock_of(partial)
        with suppress(NotImplementedError):  # a file system without locks: nothing is removed there, either
            lock.acquire()
        if not lock.is_locked or Path(lock.lock_file).exists():
            return partial, lock
        lock.release()  # another process took the new lock file for an abandoned one before it was locked


def _remove_abandoned(out: Path) -> None:
    pattern = re.compile(rf"(\.{re.escape(out.name)}\.[0-9a-f]{{8}}\.partial)(\.lock)?")
    names = [match[1] for path in out.absolute().parent.iterdir() if (match := pattern.fullmatch(path.name))]
    for partial in {out.with_name(each) for each in names}:
        lock = _lock_of(partial)
        with suppress(Timeout, NotImplementedError, OSError):
            lock.acquire(timeout=0)
            _remove(partial)
            _remove_lock(lock)


def _lock_of(partial: Path) -> FileLock:
    return FileLock(partial.with_name(f"{partial.name}.lock"))


def _remove_lock(lock: FileLock) -> None:
    """Remove a lock file while it is locked, so that nobody can lock what is about to vanish; then release it."""
    with suppress(OSError):
        os.unlink(lock.lock_file)
    lock.release()


def cached_array(path: Path | None, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Return an array that takes long to make: from its file, or made, and kept there for others."""
    if path is None:
        return make()
    with path_lock(path):
        if not path.is_file():
            with atomic_write(path) as partial, partial.open("wb") as file:
                np.save(file, make())
    return np.load(path)


def path_lock(path: Path) -> FileLock:
    """Let another process that makes the same file or folder wait until it is there."""
    return FileLock(path.with_name(f".{path.name}.lock"))


def append_json_line(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a file of JSON lines; one that was cut off, when a process died while it wrote, stays apart."""
    is_cut_off = path.is_file() and not path.read_text().endswith("\n")
    with path.open("a") as file:
        file.write(("\n" if is_cut_off else "") + json.dumps(row) + "\n")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file of JSON lines, but for those that were cut off; of no file, none."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return [row for row in map(_parse_line, lines) if isinstance(row, dict)]


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
