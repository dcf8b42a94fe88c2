"""Package exports that are imported at first use, so that importing labeldp needs neither Arrow nor torch."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from labeldp.core.errors import MissingExtra


def lazy_exports(
    package: str, modules: Mapping[str, Sequence[str]], submodules: Sequence[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package.

    Args:
        package: The name of the package.
        modules: The exported names of each module of the package.
        submodules: Subpackages that are available without an explicit import.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"{package} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        except ModuleNotFoundError as problem:
            if problem.name != "torch":
                raise
            raise MissingExtra(name) from None

    return sorted(module_of), get, lambda: sorted([*module_of, *submodules])


def has_torch() -> bool:
    """Return whether torch is installed, without importing it."""
    try:
        return find_spec("torch") is not None
    except (ModuleNotFoundError, ValueError):
        return False


def require_torch(subject: str) -> None:
    """Raise MissingExtra if torch is not installed; `subject` begins the sentence and names what needs torch."""
    if not has_torch():
        raise MissingExtra(subject)
