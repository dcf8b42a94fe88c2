"""Names of a package, loaded at first use: `--help` answers without Arrow, and the base install has no torch."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from labeldp.core.errors import MissingExtra


def lazy_exports(
    package: str, modules: Mapping[str, Sequence[str]], submodules: Sequence[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, by the names that each of its modules is home to.

    `rooms` are packages within it, which are there without an import of their own.
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
    """Return whether torch is installed, without importing it. That is a public fact."""
    try:
        return find_spec("torch") is not None
    except (ModuleNotFoundError, ValueError):
        return False


def require_torch(subject: str) -> None:
    """Raise MissingExtra if torch is not installed; `what` begins its sentence and names what needs torch."""
    if not has_torch():
        raise MissingExtra(subject)
