"""Atomic writing of files and folders, cached arrays, and files of JSON lines."""

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
    """Raise InputError if `out` cannot be written, before its content is computed."""
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
    """Yield a temporary path for a file or a folder, which is renamed to `out` only if the block succeeds.

    Args:
        out: The final path.
        overwrite: Whether an existing file is replaced. Otherwise an existing path raises InputError.
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
    """Yield a path in the folder of `out` for an unfinished file or folder, and remove it at the end.

    This also removes unfinished outputs of killed processes. Each process holds a lock on its own output. The
    operating system releases the lock when the process ends, so outputs of running processes stay.
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
        with suppress(NotImplementedError):  # a file system without locks: nothing is removed there
            lock.acquire()
        if not lock.is_locked or Path(lock.lock_file).exists():
            return partial, lock
        lock.release()  # another process removed the new lock file as abandoned before it was locked


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
    """Remove a lock file while it is locked, so that no process can lock a deleted file; then release it."""
    with suppress(OSError):
        os.unlink(lock.lock_file)
    lock.release()


def cached_array(path: Path | None, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Return the array that `path` holds; compute and store it first if there is no such file."""
    if path is None:
        return make()
    with path_lock(path):
        if not path.is_file():
            with atomic_write(path) as partial, partial.open("wb") as file:
                np.save(file, make())
    return np.load(path)


def path_lock(path: Path) -> FileLock:
    """Return a lock with which only one process at a time creates a file or folder."""
    return FileLock(path.with_name(f".{path.name}.lock"))


def append_json_line(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a file of JSON lines, on a new line even after a line that a killed process left incomplete."""
    is_cut_off = path.is_file() and not path.read_text().endswith("\n")
    with path.open("a") as file:
        file.write(("\n" if is_cut_off else "") + json.dumps(row) + "\n")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read the complete rows of a file of JSON lines; an absent file has none."""
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
