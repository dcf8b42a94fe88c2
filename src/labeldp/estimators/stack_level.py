"""The stack level of warnings, so that they point to the code that uses the library."""

import inspect


def find_stack_level() -> int:
    """Return the `stacklevel` with which a warning of the calling function points to the first caller outside labeldp.

    The function must call `warnings.warn` itself.
    """
    current = inspect.currentframe()
    frame, level = current.f_back if current else None, 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("labeldp."):
        frame, level = frame.f_back, level + 1
    return level
