"""Random bits for privacy noise: AES-256-CTR keystreams keyed by the operating system.

There is no seed and no state. Each draw of words takes a fresh key and a fresh counter from the operating system and
discards both afterwards. Two processes therefore never share a key. This holds even if Python does not detect the fork
that separates them, and even if their process ids are equal. Two draws with the same keystream would have the same
noise, and the difference of two releases would then reveal labels.
"""

import os
from typing import Any, NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

_ZEROS = memoryview(bytes(1 << 20))


class Bits(Protocol):
    """The source of randomness of a sampler: independent, uniform words of 16 and of 64 bits."""

    def uint16(self, n_words: int) -> NDArray[np.uint16]:
        """Return `n_words` uniform 16-bit words."""

    def uint64(self, n_words: int) -> NDArray[np.uint64]:
        """Return `n_words` uniform 64-bit words."""


class SystemStream:
    """Uniform words from fresh AES-256-CTR keystreams; safe across threads and across every way to fork."""

    def uint16(self, n_words: int) -> NDArray[np.uint16]:
        """Return `n_words` uniform 16-bit words."""
        return _random_bytes(2 * n_words).view(np.uint16)

    def uint64(self, n_words: int) -> NDArray[np.uint64]:
        """Return `n_words` uniform 64-bit words."""
        return _random_bytes(8 * n_words).view(np.uint64)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A noise stream cannot be copied or pickled: use labeldp.privacy.noise.secure_stream.SYSTEM.")


def _random_bytes(n_bytes: int) -> NDArray[np.uint8]:
    out = np.empty(n_bytes, np.uint8)
    keystream = _new_keystream()
    for start in range(0, n_bytes, len(_ZEROS)):
        part = out[start : start + len(_ZEROS)]
        keystream.update_into(_ZEROS[: part.size], part)
    return out


def _new_keystream() -> Any:
    return Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()


SYSTEM = SystemStream()
