"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path, typer.Argument(help="A .csv or .parquet table.")]
LabelColumn = Annotated[str, typer.Option("--label", help="The secret column.")]
Classes = Annotated[
    str, typer.Option(help='All values that the label may take, always in one order: no,yes or "a, or b",c.')
]
Epsilon = Annotated[float, typer.Option(help="Privacy of each label: smaller is more private.")]
Total = Annotated[
    float | None, typer.Option(help="The most that may ever be spent on this data set; at first, epsilon.")
]
LedgerFile = Annotated[Path | None, typer.Option("--ledger", help="The ledger; by default DATA.ledger.")]
Ids = Annotated[str | None, typer.Option(help="A column of row ids that identifies the data set; else all features.")]
MissingPublic = Annotated[
    bool, typer.Option("--missing-public", help="A missing label is a public fact: the row is unlabelled.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
