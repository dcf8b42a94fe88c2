"""A vault whose ledger is a file, bound to a data set, and the rows of a ledger's entries."""

import numpy as np

import labeldp as ldp
from labeldp.accounting.costs import unpack_rows

SPACE = ldp.LabelSpace([0, 1])
LABELS = [0, 1] * 500
RR = ldp.RandomizedResponse


def identity(**change):
    return ldp.Identity(**{"name": "people", "label": "income", "n_rows": len(LABELS), "digest": "abc"} | change)


def open_vault(path, epsilon=1.0, labels=LABELS, **options):
    options = {"identity": identity()} | options
    return ldp.Vault(labels, SPACE, ldp.Budget(epsilon), ledger=path, **options)


def rows_of(vault, entry):
    """Return the rows of an entry as a mask."""
    mask = unpack_rows(vault.ledger.packed_rows(entry.row_set), vault.n_rows)
    return np.ones(vault.n_rows, bool) if mask is None else mask
