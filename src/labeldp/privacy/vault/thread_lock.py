"""A lock between the threads of one process that is free after a fork."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ThreadLock:
    """A reentrant lock for each process.

    A process that was forked while another thread held an ordinary lock waits for it forever, because that thread does
    not exist in it. Python does not notice every fork (one by libc, for example), so each process id has its own lock.
    """

    def __init__(self) -> None:
        self._locks: dict[int, Any] = {}

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock of this process."""
        with self._locks.setdefault(os.getpid(), threading.RLock()):
            yield
