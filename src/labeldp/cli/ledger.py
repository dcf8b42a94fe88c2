"""`labeldp ledger`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from labeldp.cli.options import AsJson
from labeldp.cli.terminal import echo

ledger_app = typer.Typer(help="Look at what was spent on a data set.", no_args_is_help=True)


@ledger_app.command("show")
def show_ledger(
    path: Annotated[Path, typer.Argument(help="A ledger, or the data that it lies beside.")],
    as_json: AsJson = False,
) -> None:
    """Show every release of a data set and what is left."""
    from labeldp.report.ledger import print_ledger, read_ledger_report

    report = read_ledger_report(path)
    if as_json:
        echo(json.dumps(report, indent=2))
    else:
        print_ledger(report)
