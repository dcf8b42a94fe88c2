"""Notes on exceptions after a charge: the releases are stored, and the next run uses them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PAID_NOTE = "What was released is paid for and in the ledger: the same request uses it at no further cost."


@contextmanager
def note_charge_on_failure(vault: Any) -> Iterator[None]:
    """Add a note to an exception that is raised inside after a charge to a ledger file.

    Args:
        vault: The vault whose ledger is watched.

    Raises:
        Exception: The exception raised inside, with `PAID_NOTE` in its `__notes__` if a charge preceded it.
    """
    n_charges_before = len(vault.ledger.snapshot().charges)
    try:
        yield
    except Exception as problem:
        is_persistent = vault.ledger.path is not None
        if (
            is_persistent
            and len(vault.ledger.snapshot().charges) > n_charges_before
            and PAID_NOTE not in getattr(problem, "__notes__", ())
        ):
            problem.add_note(PAID_NOTE)
        raise


def message_with_notes(problem: BaseException) -> str:
    """Return the message of an exception with its notes."""
    return " ".join([str(problem), *getattr(problem, "__notes__", ())])
