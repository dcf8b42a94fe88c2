"""Text descriptions of learners, which are equal in every process and differ for learners of different models.

The ledger compares requests by these descriptions. Two learners with the same description are one request, and the
second gets the release of the first. A function or class at the top of a module is described by its name. A function
that was made inside another function is described by its code and by the values that it uses, because each call can
make a different one.
"""

import dis
import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from labeldp.core.errors import InputError

# A worker process imports the main script by the second name.
_MAIN_MODULES = ("__main__", "__mp_main__")


def describe(value: Any) -> str:
    """Describe a learner, or a part of one.

    Args:
        value: A dataclass, a function, a class, a partial, a scikit-learn estimator, an array, or plain numbers and
            strings, also in lists, tuples and dictionaries.

    Returns:
        A text that names everything on which the behavior of the value depends.

    Raises:
        InputError: The value has no description that is the same in every process.
    """
    if _is_plain(value):
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{f.name}={describe(getattr(value, f.name))}" for f in fields(value) if f.compare)
        return f"{_qualified_name(type(value))}({inner})"
    if isinstance(value, partial):
        return f"{describe(value.func)}{describe(value.args)}{describe(sorted(value.keywords.items()))}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {_digest(np.ascontiguousarray(value).tobytes())}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(describe, value))})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{describe(key)}: {describe(value[key])}' for key in value)})"
    if inspect.ismethod(value):
        return f"{describe(value.__self__)}.{value.__func__.__name__}"
    if isinstance(value, FunctionType):
        return _describe_function(value)
    if isinstance(value, type | ModuleType) or inspect.isbuiltin(value):
        return _qualified_name(value)
    return _describe_object(value)


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, complex, str, bytes)


def _qualified_name(value: Any) -> str:
    """Return the name of a class, function or module, without the module for those of this library."""
    if isinstance(value, ModuleType):
        return value.__name__
    name, module = value.__qualname__, getattr(value, "__module__", None) or "builtins"
    if "<locals>" in name:
        raise InputError(
            f"{name} was defined inside a function, so its name does not identify it: define it at the top."
        )
    return (
        str(name)
        if module.startswith("labeldp.")
        else f"{_MAIN_MODULES[0] if module in _MAIN_MODULES else module}.{name}"
    )


def _describe_function(function: FunctionType) -> str:
    """Describe a function of a module by its name, and one of a script, a closure or a lambda by code and values."""
    is_local = function.__closure__ or "<" in function.__qualname__
    if not is_local and function.__module__ not in _MAIN_MODULES:  # a notebook can define the same name again
        return _qualified_name(function)
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        used = {
            name: function.__globals__[name] for name in _global_names(function.__code__) & function.__globals__.keys()
        }
        used.pop(function.__name__, None)  # itself
        words = [
            _describe_code(function.__code__),
            *map(describe, (cells, function.__defaults__, sorted((function.__kwdefaults__ or {}).items()))),
            *(f"{name}={describe(used[name])}" for name in sorted(used)),
        ]
    except (InputError, ValueError, RecursionError):
        raise InputError(
            f"The function {function.__qualname__} uses values beside numbers, strings and functions, so two such "
            "functions cannot be distinguished: define it at the top of a module, or use functools.partial of such a "
            "function."
        ) from None
    return f"{function.__qualname__} {_digest(' '.join(words).encode())}"


def _describe_code(code: CodeType) -> str:
    """Describe the code of a function, without its place in a file."""
    constants = [
        _describe_code(each) if isinstance(each, CodeType) else _describe_constant(each) for each in code.co_consts
    ]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames} {code.co_freevars}"


def _describe_constant(value: Any) -> str:
    """Describe a constant. A set is sorted, because its order differs between processes."""
    return f"set{sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)


def _global_names(code: CodeType) -> set[str]:
    """Return the global names that a function and its inner functions read."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*map(_global_names, _inner_codes(code)))


def _inner_codes(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


def _describe_object(value: Any) -> str:
    """Describe an estimator by its parameters, and a few other types by `repr`; refuse objects with hidden state."""
    words = repr(value)
    if hasattr(value, "get_params"):
        is_abbreviated = "..." in words or " at 0x" in words
        return (
            f"{_qualified_name(type(value))}({describe(sorted(value.get_params().items()))})"
            if is_abbreviated
            else words
        )
    if isinstance(value, PurePath | Enum | np.generic | torch.device | torch.dtype):
        return words
    raise InputError(
        f"A {type(value).__name__} has no description that identifies a request: give numbers, strings, or "
        "functions and classes at the top of a module."
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
