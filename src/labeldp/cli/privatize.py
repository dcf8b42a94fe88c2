"""`labeldp privatize`."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.options import (
    AsJson,
    Classes,
    Data,
    Epsilon,
    Ids,
    LabelColumn,
    LabelsPerUser,
    LedgerFile,
    MissingPublic,
    Total,
    UserColumn,
)
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
    user_column: UserColumn = None,
    labels_per_user: LabelsPerUser = None,
    as_json: AsJson = False,
) -> None:
    """Write a copy of a table whose labels went through randomized response."""
    from labeldp.datasets import SecretTable
    from labeldp.files import check_free
    from labeldp.mechanisms import RandomizedResponse

    asked = RandomizedResponse(epsilon)
    table = SecretTable.open(data, label, classes, "public" if missing_public else "error", ids, user_column)
    check_free(out, data.suffix)
    with progress_bar(table.file.rows) as progress:
        progress.start("reading labels")
        totals: dict[str, Any] = {"budget": budget, "labels_per_user": labels_per_user}
        vault = table.vault(epsilon, **totals, ledger=ledger, progress=progress.advance)
        progress.start("drawing noise")
        rows = vault.capped(labels_per_user)
        mechanism = vault.shared(asked, rows)
        codes = vault.release(mechanism, rows).labels()
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
    kept = 1 / (1 + (len(table.space) - 1) * math.exp(-mechanism.epsilon))
    spent, dropped = vault.guarantee(), int((vault.labelled & ~rows).sum())
    left_out = f", of which {dropped:,} lost their label, as a user keeps {labels_per_user}" if dropped else ""
    say(
        {"out": str(out), "rows": vault.rows, "dropped": dropped, "kept": kept, "guarantee": spent.to_json()},
        f"Wrote {out}: {vault.rows:,} rows{left_out}. Each label is the true one with probability {kept:.3f}; "
        f"each {vault.unit} has now spent epsilon {spent.epsilon:g} of {vault.budget.epsilon:g}.",
        as_json,
    )
