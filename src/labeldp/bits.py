"""Random bits for privacy noise: an AES-256-CTR keystream keyed by the operating system.

There is no seed. A stream belongs to one process: a fork gives the child a new key (two children that kept
one keystream would draw the same noise, and equal noise cancels), and a stream is never copied or pickled.
"""

import os
import threading
import weakref
from typing import Any, NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

_ZEROS = memoryview(bytes(1 << 20))


class Bits(Protocol):
    """What a sampler needs: independent, uniform words of 16 and of 64 bits."""

    def uint16(self, count: int) -> NDArray[np.uint16]:
        """Return `count` uniform 16-bit words."""

    def uint64(self, count: int) -> NDArray[np.uint64]:
        """Return `count` uniform 64-bit words."""


class SystemStream:
    """An AES-256-CTR keystream; safe between threads, keyed anew after a fork."""

    def __init__(self) -> None:
        self._rekey()
        _STREAMS.add(self)

    def uint16(self, count: int) -> NDArray[np.uint16]:
        """Return `count` uniform 16-bit words."""
        return self._bytes(2 * count).view(np.uint16)

    def uint64(self, count: int) -> NDArray[np.uint64]:
        """Return `count` uniform 64-bit words."""
        return self._bytes(8 * count).view(np.uint64)

    def _bytes(self, count: int) -> NDArray[np.uint8]:
        out = np.empty(count, np.uint8)
        with self._lock:
            for start in range(0, count, len(_ZEROS)):
                part = out[start : start + len(_ZEROS)]
                self._cipher.update_into(_ZEROS[: part.size], part)
        return out

    def _rekey(self) -> None:
        # A new lock as well: another thread may have held the old one at the moment of the fork.
        self._lock = threading.Lock()
        self._cipher: Any = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()

    def __copy__(self) -> NoReturn:
        raise TypeError("A noise stream cannot be copied: a copy would repeat its noise.")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("A noise stream cannot be pickled: a copy would repeat its noise.")


_STREAMS: "weakref.WeakSet[SystemStream]" = weakref.WeakSet()


def _rekey_all() -> None:
    for stream in list(_STREAMS):
        stream._rekey()


os.register_at_fork(after_in_child=_rekey_all)

SYSTEM = SystemStream()
