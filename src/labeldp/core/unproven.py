"""Switches for mechanisms whose published privacy claim does not hold. Each must be allowed by name."""

from labeldp.core.errors import InputError

_REASONS = {"immutable": "ImmutableArgmax claims a privacy that it does not have: it releases the exact winner."}
_ALLOWED: set[str] = set()


def allow_unproven(name: str) -> None:
    """Allow, in this process, a mechanism whose published privacy claim does not hold."""
    if name not in _REASONS:
        raise InputError(f"Nothing unproven has that name: the names are {', '.join(sorted(_REASONS))}.")
    _ALLOWED.add(name)


def require_allowed(name: str) -> None:
    """Raise InputError unless `allow_unproven(name)` was called."""
    if name not in _ALLOWED:
        raise InputError(
            f'{_REASONS[name]} To study it all the same, call labeldp.allow_unproven("{name}") first.',
            parameter="allow_unproven",
        )
