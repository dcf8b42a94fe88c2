"""The command `labeldp ledger`: the privacy costs that a ledger records."""

import json
from pathlib import Path
from typing import Annotated

import typer

from labeldp.cli.options import AsJson
from labeldp.cli.terminal import echo

ledger_app = typer.Typer(help="Inspect the privacy costs of a data set.", no_args_is_help=True)


@ledger_app.command("show")
def show_ledger(
    path: Annotated[Path, typer.Argument(help="A ledger, or the data file that it belongs to.")],
    as_json: AsJson = False,
) -> None:
    """Show every release of a data set and the remaining budget."""
    from labeldp.report.ledger import print_ledger, read_ledger_report

    report = read_ledger_report(path)
    if as_json:
        echo(json.dumps(report, indent=2))
    else:
        print_ledger(report)
