"""The `labeldp` command. Heavy modules are imported where they are used, so that help is instant."""

import os
import sys
import traceback
import warnings
from typing import Annotated, NoReturn

import typer

from labeldp.cli.account import account
from labeldp.cli.audit import audit
from labeldp.cli.card import card
from labeldp.cli.compare import compare
from labeldp.cli.encode import encode
from labeldp.cli.ledger import ledger_app
from labeldp.cli.options import OPTION_OF_PARAMETER
from labeldp.cli.plan import plan
from labeldp.cli.predict import predict
from labeldp.cli.privatize import privatize
from labeldp.cli.reproduce import reproduce
from labeldp.cli.terminal import echo
from labeldp.cli.train import train
from labeldp.core.errors import BudgetExceeded, LabelDPError, MissingExtra

app = typer.Typer(
    name="labeldp",
    help="Train models when the labels are the secret: label differential privacy.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_COMMANDS = (train, predict, encode, plan, compare, privatize, account, card, audit, reproduce)
for command in _COMMANDS:
    app.command()(command)
app.add_typer(ledger_app, name="ledger")
_INTERRUPTED_CODE = 130  # what shells expect of a command that ends on SIGINT


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        from labeldp.core.version import __version__

        echo(f"labeldp {__version__}")
    elif context.invoked_subcommand is None:
        echo(context.get_help())


def main() -> None:
    """Run the command line; anything wrong with the request is one sentence and exit code 2, a bug one and code 1."""
    from labeldp.privacy.vault.failure_notes import message_with_notes

    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # they are for who writes code: python -W default -m labeldp shows them
    try:
        code = app(standalone_mode=False)
    except LabelDPError as problem:
        _fail(f"{message_with_notes(problem)}{_option_hint(problem)}", 2)
    except ModuleNotFoundError as problem:
        if problem.name not in ("torch", "safetensors", "PIL", "matplotlib"):
            _fail_unexpectedly(problem)
        _fail(str(MissingExtra("This command", problem.name)), 2)
    except MemoryError as problem:
        notes = " ".join(getattr(problem, "__notes__", ()))
        _fail(f"this needs more memory than there is: ask for less, or take a larger machine. {notes}".rstrip(), 2)
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED_CODE
    except SystemExit as stop:  # how some versions of typer end an interrupted command
        code = stop.code
    except Exception as problem:
        # What typer says of wrong options. Its exceptions have had several homes, and always these two attributes.
        if not (hasattr(problem, "format_message") and hasattr(problem, "exit_code")):
            _fail_unexpectedly(problem)
        message = problem.format_message()
        if not message:  # a group of commands without one of them: its help is on the screen
            sys.exit(problem.exit_code)
        names = {command.__name__ for command in _COMMANDS}
        hint_command = " ".join(["labeldp", *(word for word in sys.argv[1:2] if word in names), "--help"])
        _fail(f"{message} ({hint_command} lists what there is.)", 2)
    if code == _INTERRUPTED_CODE:
        _fail("interrupted; nothing is left half-written, and the same command goes on where it was.", code)
    sys.exit(code)


def run() -> None:
    """Run the command line as a process of its own."""
    try:
        main()
    except SystemExit as stop:
        if stop.code == _INTERRUPTED_CODE:
            # If the interrupt passed through an `exec` of some library, Python would end itself by the signal, whatever
            # was made of it later. Everything is written or removed by now.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_INTERRUPTED_CODE)
        raise


def _option_hint(problem: LabelDPError) -> str:
    """Name the option by which a command takes the remedy of an error; the library names parameters alone."""
    if isinstance(problem, BudgetExceeded):
        delta = "" if sys.argv[1:2] == ["privatize"] else "; --delta-budget sets the total delta"
        return f" (--budget sets the total for this data set{delta}.)"
    option = OPTION_OF_PARAMETER.get(problem.parameter or "")
    return f" ({option}.)" if option else ""


def _fail_unexpectedly(problem: Exception) -> NoReturn:
    """Say what kind of exception ended the command. Its message may quote data, and is shown on request alone."""
    if os.environ.get("LABELDP_TRACEBACK") == "1":
        traceback.print_exception(problem)
    notes = " ".join(getattr(problem, "__notes__", ()))
    message = f"an unexpected {type(problem).__name__} ended this command. {notes}".rstrip()
    _fail(f"{message} LABELDP_TRACEBACK=1 shows where it happened, with what it quotes of the data.", 1)


def _fail(sentence: str, code: int) -> NoReturn:
    echo(f"labeldp: {sentence}", err=True)
    sys.exit(code)
