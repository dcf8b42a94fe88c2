"""A folder for the checkpoints of a training, which goes when the training is done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from labeldp.core.errors import InputError


@contextmanager
def checkpoint_folder(out: Path) -> Iterator[Path]:
    """Give a folder for checkpoints beside `out`. It goes when all went well, or when nothing is in it."""
    folder = out.with_name(f".{out.name}.checkpoints")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is in the way of checkpoints: remove it.")
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
        raise InputError(f"Another command is making {out}: wait for it, or choose another path.") from None
