"""`labeldp privatize`."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.options import AsJson, Classes, Data, Epsilon, Ids, LabelColumn, LedgerFile, MissingPublic, Total
from labeldp.cli.screen import progress_bar, say


def privatize(
    data: Data,
    label: LabelColumn,
    classes: Classes,
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="Where to write the table with noisy labels.")],
    budget: Total = None,
    ledger: LedgerFile = None,
    ids: Ids = None,
    missing_public: MissingPublic = False,
    as_json: AsJson = False,
) -> None:
    """Write a copy of a table whose labels went through randomized response."""
    from labeldp.datasets import SecretTable
    from labeldp.files import check_free
    from labeldp.mechanisms import RandomizedResponse

    mechanism = RandomizedResponse(epsilon)
    table = SecretTable.open(data, label, classes, "public" if missing_public else "error", ids)
    check_free(out, data.suffix)
    with progress_bar(table.file.rows) as progress:
        progress.start("reading labels")
        vault = table.vault(epsilon, budget=budget, ledger=ledger, progress=progress.advance)
        progress.start("drawing noise")
        codes = vault.release(mechanism).labels()
        progress.start("writing")
        done = 0

        def change(batch: Any) -> Any:
            nonlocal done
            noisy = table.replaced(batch, codes[done : done + batch.num_rows])
            done += batch.num_rows
            progress.advance(batch.num_rows)
            return noisy

        facts = {"labeldp.guarantee": json.dumps(vault.guarantee().to_json())}
        table.file.rewrite(out, change, label, facts)
    kept = 1 / (1 + (len(table.space) - 1) * math.exp(-epsilon))
    say(
        {"out": str(out), "rows": vault.rows, "kept": kept, "guarantee": vault.guarantee().to_json()},
        f"Wrote {out}: {vault.rows:,} rows. Each label is the true one with probability {kept:.3f}; "
        f"this data set has now spent epsilon {vault.guarantee().epsilon:g} of {vault.budget.epsilon:g}.",
        as_json,
    )
