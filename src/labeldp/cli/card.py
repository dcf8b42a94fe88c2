"""`labeldp card`."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from labeldp.cli.terminal import echo


def card(
    run: Annotated[Path, typer.Argument(help="A run folder that `labeldp train` made.")],
    form: Annotated[
        str | None, typer.Option("--format", help="md and json go to the screen; html opens, or with --no-open, too.")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
) -> None:
    """Say where the privacy card of a run is, with what audits have found since, and open it in a browser."""
    from labeldp.core.errors import InputError
    from labeldp.report.card import FORMATS, card_of_run, write_card

    if form is not None and form not in FORMATS:
        raise InputError(f"There is no format {form!r}: choose one of {', '.join(FORMATS)}.")
    if form in ("md", "json") or (form == "html" and no_open):
        echo(card_of_run(run).text(form), end=False)
        return
    alert = write_card(run).alert
    page = (run / "card.html").resolve()
    echo(f"The card is {page}" + (" (card.md and card.json beside it)." if no_open else "."))
    if alert:
        echo(f"Note: {alert}", err=True)
    if not no_open and not webbrowser.open(page.as_uri()):
        echo("No browser was found to open it: open that file in one, or choose --format md.", err=True)
