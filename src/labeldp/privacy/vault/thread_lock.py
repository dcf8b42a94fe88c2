"""A lock between the threads of one process, which a fork does not leave locked."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ThreadLock:
    """A reentrant lock for each process.

    A process that was forked while another thread held an ordinary lock waits for it forever, because that thread does
    not exist there. Python is not told of every fork (one by libc, for example), so that the process id decides.
    """

    def __init__(self) -> None:
        self._locks: dict[int, Any] = {}

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock of this process."""
        with self._locks.setdefault(os.getpid(), threading.RLock()):
            yield
