"""The command `labeldp card`: the privacy card of a run."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from labeldp.cli.terminal import echo


def card(
    run: Annotated[Path, typer.Argument(help="A run folder of `labeldp train`.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="md and json are printed; html opens in a browser, or is printed with --no-open."
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Update the privacy card of a run with its audits, print its path, and open it in a browser."""
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
        echo("No browser was found: open that file in a browser, or choose --format md.", err=True)
