"""The `labeldp` command line. Commands import heavy modules inside functions, so that help is fast."""

import os
import sys
import traceback
import warnings
from typing import Annotated, Any, NoReturn

import typer

from labeldp.cli.account_votes import account
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
    help="Train models on private labels with label differential privacy.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_COMMANDS = (train, predict, encode, plan, compare, privatize, account, card, audit, reproduce)
for command in _COMMANDS:
    app.command()(command)
app.add_typer(ledger_app, name="ledger")
_APPLICATION = app
_INTERRUPTED_CODE = 130  # by convention of shells, after SIGINT


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
    """Run the command line and exit. A wrong request prints one sentence and has code 2, a bug has code 1."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # for developers: python -W default -m labeldp shows them
    try:
        code = app(standalone_mode=False)
    except LabelDPError as problem:
        from labeldp.privacy.vault.failure_notes import message_with_notes

        _fail(f"{message_with_notes(problem)}{_option_hint(problem)}", 2)
    except ModuleNotFoundError as problem:
        if problem.name not in ("torch", "safetensors", "PIL", "matplotlib"):
            _fail_unexpectedly(problem)
        _fail(str(MissingExtra("This command", problem.name)), 2)
    except MemoryError as problem:
        notes = " ".join(getattr(problem, "__notes__", ()))
        _fail(f"there is not enough memory: reduce the request, or use a larger machine. {notes}".rstrip(), 2)
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED_CODE
    except SystemExit as stop:  # some versions of typer end an interrupted command by it
        code = stop.code
    except Exception as problem:
        # Errors of typer about options. Their module depends on its version, but all have these two attributes.
        if not (hasattr(problem, "format_message") and hasattr(problem, "exit_code")):
            _fail_unexpectedly(problem)
        message = problem.format_message()
        if not message:  # a group without a command: typer has printed its help
            sys.exit(problem.exit_code)
        names = {command.__name__ for command in _COMMANDS}
        hint_command = " ".join(["labeldp", *(word for word in sys.argv[1:2] if word in names), "--help"])
        _fail(f"{message} ({hint_command} lists all options and commands.)", 2)
    if code == _INTERRUPTED_CODE:
        _fail("interrupted; there are no partial files, and the same command resumes.", code)
    sys.exit(code)


def run() -> None:
    """Run the command line as the entry point of a process."""
    try:
        main()
    except SystemExit as stop:
        if stop.code == _INTERRUPTED_CODE:
            # After an interrupt within an `exec` of a library, Python ends itself by the signal, even if the exception
            # was handled. All files are written or removed at this point.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_INTERRUPTED_CODE)
        raise


def _option_hint(problem: LabelDPError) -> str:
    """Return the option that sets the parameter of an error; errors of the library name parameters only."""
    options = []
    if isinstance(problem, BudgetExceeded):
        options.append("--budget sets the total for this data set")
        if sys.argv[1:2] != ["privatize"]:
            options.append("--delta-budget sets the total delta")
    option = OPTION_OF_PARAMETER.get(problem.parameter or "")
    if option and _takes(option.split()[0]):
        options.append(option)
    return f" ({'; '.join(options)}.)" if options else ""


def _takes(option: str) -> bool:
    """Return whether the command that runs has an option; without a command, as in tests, any option counts."""
    command: Any = typer.main.get_command(_APPLICATION)
    for word in sys.argv[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    return hasattr(command, "commands") or any(option in parameter.opts for parameter in command.params)


def _fail_unexpectedly(problem: Exception) -> NoReturn:
    """Report the type of an unexpected exception. Its message may quote data, so it is shown on request only."""
    if os.environ.get("LABELDP_TRACEBACK") == "1":
        traceback.print_exception(problem)
    notes = " ".join(getattr(problem, "__notes__", ()))
    message = f"an unexpected {type(problem).__name__} ended this command. {notes}".rstrip()
    _fail(f"{message} LABELDP_TRACEBACK=1 shows the traceback, which may quote data.", 1)


def _fail(sentence: str, code: int) -> NoReturn:
    echo(f"labeldp: {sentence}", err=True)
    sys.exit(code)
