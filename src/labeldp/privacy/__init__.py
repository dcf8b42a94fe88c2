"""The private side: all code that may access a raw label or draw noise. README.md lists its rules."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.privacy import mechanisms as mechanisms
    from labeldp.privacy import teachers as teachers
    from labeldp.privacy import vault as vault

__all__, __getattr__, __dir__ = lazy_exports("labeldp.privacy", {}, ["mechanisms", "teachers", "vault"])
