"""The `labeldp` command. Heavy modules are imported where they are used, so that help is instant."""

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

app = typer.Typer(
    name="labeldp",
    help="Train models when the labels are the secret: label differential privacy.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
ledger_app = typer.Typer(help="Look at what was spent on a data set.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        from labeldp import __version__

        typer.echo(f"labeldp {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


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


@app.command()
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
    table = SecretTable.open(data, label, classes, "public" if missing_public else "error")
    check_free(out, data.suffix)
    with _progress(table.file.rows) as progress:
        progress.start("reading labels")
        vault = table.vault(epsilon, budget=budget, ledger=ledger, ids=ids, progress=progress.advance)
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
    _say(
        {"out": str(out), "rows": vault.rows, "kept": kept, "guarantee": vault.guarantee().to_json()},
        f"Wrote {out}: {vault.rows:,} rows. Each label is the true one with probability {kept:.3f}; "
        f"this data set has now spent epsilon {vault.guarantee().epsilon:g} of {vault.budget.epsilon:g}.",
        as_json,
    )


@app.command()
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
    with _progress(table.file.rows) as progress:
        progress.start("reading labels")
        vault = table.vault(epsilon, budget=budget, ledger=ledger, ids=ids, progress=progress.advance)
        progress.start("training")
        report = runs.train(table, vault, epsilon, out, seed=seed)
    score = report["estimate"]
    _say(
        report,
        f"Wrote {out}: accuracy about {score['accuracy']:.1%} (95 % interval {score['low']:.1%} to "
        f"{score['high']:.1%}, measured privately on {score['rows']:,} held-out rows). Each label has spent epsilon "
        f"{report['guarantee']['epsilon']:g} of {vault.budget.epsilon:g} so far.",
        as_json,
    )


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run folder that `labeldp train` made.")],
    data: Data,
    out: Annotated[
        Path | None, typer.Option(help="A .csv or .parquet file; by default CSV goes to the screen.")
    ] = None,
) -> None:
    """Predict labels for new rows."""
    from labeldp import runs
    from labeldp.files import check_free, written_whole

    if out is not None:
        check_free(out, ".csv", ".parquet")
    frame = runs.predict(run, data)
    if out is None:
        sys.stdout.write(frame.write_csv())
        return
    with written_whole(out) as partial:
        frame.write_csv(partial) if out.suffix == ".csv" else frame.write_parquet(partial)
    typer.echo(f"Wrote {out}: {frame.height:,} rows.", err=True)


@ledger_app.command("show")
def show(
    path: Annotated[Path, typer.Argument(help="A ledger, or the data that it lies beside.")],
    as_json: AsJson = False,
) -> None:
    """Show every release of a data set and what is left."""
    from labeldp.report.ledger import ledger_report, print_ledger

    report = ledger_report(path)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        print_ledger(report)


_INTERRUPTED = 130  # what shells expect of a command that ends on SIGINT


class _Progress:
    """A bar on the terminal; nothing where the output goes elsewhere."""

    def __init__(self, bar: Any, total: int | None) -> None:
        self._bar, self._total, self._task = bar, total, None

    def start(self, what: str) -> None:
        if self._task is not None:
            self._bar.update(self._task, total=1, completed=1)
        self._task = self._bar.add_task(what, total=self._total if what != "drawing noise" else None)

    def advance(self, rows: int) -> None:
        self._bar.advance(self._task, rows)


@contextmanager
def _progress(total: int | None) -> Iterator[_Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    count = TextColumn("{task.completed:,.0f} rows")
    columns = (TextColumn("{task.description:<15}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield _Progress(bar, total)


def _say(data: dict[str, Any], sentence: str, as_json: bool) -> None:
    typer.echo(json.dumps(data, indent=2) if as_json else sentence)


def main() -> None:
    """Run the command line; anything wrong with the request is one sentence and exit code 2."""
    from labeldp.errors import BudgetExceeded, LabelDPError

    try:
        code = app(standalone_mode=False)
    except LabelDPError as problem:
        hint = " (--budget sets the total for this data set.)" if isinstance(problem, BudgetExceeded) else ""
        _fail(f"{problem}{hint}", 2)
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except SystemExit as stop:  # how some versions of typer end an interrupted command
        code = stop.code
    except Exception as problem:
        # What typer says of wrong options. Its exceptions have had several homes, and always these two attributes.
        if not (hasattr(problem, "format_message") and hasattr(problem, "exit_code")):
            raise
        _fail(f"{problem.format_message()} (labeldp --help lists what there is.)", 2)
    if code == _INTERRUPTED:
        _fail("interrupted; nothing is left half-written, and the same command goes on with what was drawn.", code)
    sys.exit(code)


def _fail(sentence: str, code: int) -> NoReturn:
    typer.echo(f"labeldp: {sentence}", err=True)
    sys.exit(code)
