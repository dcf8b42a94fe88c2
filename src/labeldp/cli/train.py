"""`labeldp train`."""

from pathlib import Path
from typing import Annotated

import typer

from labeldp.cli.options import AsJson, Classes, Data, Epsilon, Ids, LabelColumn, LedgerFile, MissingPublic, Total
from labeldp.cli.screen import progress_bar, say


def train(
    data: Data,
    label: LabelColumn,
    classes: Classes,
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="The run folder to make.")],
    budget: Total = None,
    ledger: LedgerFile = None,
    ids: Ids = None,
    missing_public: MissingPublic = False,
    seed: Annotated[int, typer.Option(help="For the choice of held-out rows; never for privacy noise.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a classifier on a table whose labels stay private."""
    from labeldp import runs
    from labeldp.datasets import SecretTable
    from labeldp.files import check_free
    from labeldp.guarantees import check_epsilon

    check_epsilon(epsilon)
    check_free(out)
    table = SecretTable.open(data, label, classes, "public" if missing_public else "error")
    with progress_bar(table.file.rows) as progress:
        progress.start("reading labels")
        vault = table.vault(epsilon, budget=budget, ledger=ledger, ids=ids, progress=progress.advance)
        progress.start("training")
        report = runs.train(table, vault, epsilon, out, seed=seed)
    score = report["estimate"]
    say(
        report,
        f"Wrote {out}: accuracy about {score['accuracy']:.1%} (95 % interval {score['low']:.1%} to "
        f"{score['high']:.1%}, measured privately on {score['rows']:,} held-out rows). Each label has spent epsilon "
        f"{report['guarantee']['epsilon']:g} of {vault.budget.epsilon:g} so far.",
        as_json,
    )
