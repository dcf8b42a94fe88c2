"""A vault whose ledger is a file, bound to a data set."""

import labeldp as ldp

SPACE = ldp.LabelSpace([0, 1])
LABELS = [0, 1] * 500
RR = ldp.RandomizedResponse


def identity(**change):
    return ldp.Identity(**{"name": "people", "label": "income", "rows": len(LABELS), "digest": "abc"} | change)


def open_vault(path, epsilon=1.0, labels=LABELS, **options):
    options = {"identity": identity()} | options
    return ldp.Vault(labels, SPACE, ldp.Budget(epsilon), ledger=path, **options)
