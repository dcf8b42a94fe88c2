"""The folder for checkpoints of a training, which is removed when the training is complete."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from labeldp.core.errors import InputError


@contextmanager
def checkpoint_folder(out: Path) -> Iterator[Path]:
    """Yield a folder for checkpoints beside `out`. It is removed after a success, or if it is empty."""
    folder = out.with_name(f".{out.name}.checkpoints")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder, but checkpoints need this name: remove it.")
    folder.mkdir(exist_ok=True)
    with _hold_lock(folder / "lock", out):
        try:
            yield folder
            shutil.rmtree(folder)
        finally:
            if folder.is_dir() and [path.name for path in folder.iterdir()] == ["lock"]:
                shutil.rmtree(folder)


@contextmanager
def _hold_lock(lock: Path, out: Path) -> Iterator[None]:
    try:
        with FileLock(lock, timeout=0):
            yield
    except Timeout:
        raise InputError(f"Another process is writing {out}: wait for it, or choose another path.") from None
