"""Reading of pickled arrays without running code that the file names.

A pickle can call any function by name. Here only the few names by which NumPy writes arrays are allowed, and these are
replaced by plain containers. NumPy reads the content only after its shape, type and length are checked.
"""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError


class _PickledDtype:
    """A pickled dtype: its code, such as u1, and its byte order."""

    def __init__(self, code: Any = b"", *_: Any) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code
        self.order = "|"

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        self.order = order.decode("latin1") if isinstance(order, bytes) else order

    def dtype(self) -> np.dtype[Any]:
        if not (isinstance(self.code, str) and re.fullmatch("[iu][1248]", self.code) and self.order in ("|", "<", ">")):
            raise pickle.UnpicklingError("an array of something else than integers")
        return np.dtype(self.order + self.code)


class _PickledArray:
    """A pickled array: the state from which `array` creates it after everything has been read."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        _, *self.state = state

    def array(self) -> NDArray[Any]:
        shape, pickled_dtype, fortran, raw = self.state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        flat = np.frombuffer(raw, pickled_dtype.dtype())
        return flat.reshape(shape, order="F" if fortran else "C")


def _from_buffer(raw: Any, pickled_dtype: Any, shape: Any, order: Any, *_: Any) -> _PickledArray:
    array = _PickledArray()
    array.__setstate__((1, shape, pickled_dtype, order in ("F", b"F"), raw))
    return array


def _encode_latin1(text: Any, *_: Any) -> bytes:
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    return b""


_ALLOWED: dict[tuple[str, str], Any] = {("numpy", "ndarray"): _PickledArray, ("numpy", "dtype"): _PickledDtype}
_ALLOWED[("_codecs", "encode")] = _encode_latin1  # how old protocols write bytes, and then empty ones
_ALLOWED[("__builtin__", "bytes")] = _ALLOWED[("builtins", "bytes")] = _empty_bytes
for _core in ("numpy.core", "numpy._core"):
    _ALLOWED[(f"{_core}.multiarray", "_reconstruct")] = _PickledArray
    _ALLOWED[(f"{_core}.numeric", "_frombuffer")] = _from_buffer


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name}, which no array needs")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary of integer arrays, strings and lists; raise InputError for any other content."""
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError("no dictionary")
        return {
            _to_string(key): value.array() if isinstance(value, _PickledArray) else value
            for key, value in content.items()
        }
    except pickle.UnpicklingError as problem:
        raise InputError(f"{path} is damaged or no plain pickle of arrays ({problem}).") from None
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}.") from None
    except Exception as problem:  # a damaged pickle can raise nearly anything
        raise InputError(f"{path} is damaged or no plain pickle of arrays ({type(problem).__name__}).") from None


def _to_string(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)
