"""The command `labeldp predict`: predictions of a run for new rows."""

from pathlib import Path
from typing import Annotated

import typer

from labeldp.cli.options import Data
from labeldp.cli.terminal import echo


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder of `labeldp train`.")],
    data: Data,
    out: Annotated[Path | None, typer.Option(help="A .csv or .parquet file; by default, CSV is printed.")] = None,
    ids: Annotated[str | None, typer.Option(help="A column of row ids to copy beside the predictions.")] = None,
) -> None:
    """Predict labels for new rows.

    In CSV, a quote (') precedes each text that a spreadsheet would execute as a formula. Parquet contains it unchanged.
    """
    from labeldp.core.atomic_files import atomic_write, check_writable
    from labeldp.data.spreadsheets import escape_formulas
    from labeldp.runs.predict import predict as predict_run

    if out is not None:
        check_writable(out, ".csv", ".parquet")
    frame = predict_run(run, data, ids, warn=lambda message: echo(f"Note: {message}", err=True))
    if out is None or out.suffix == ".csv":
        frame, n_changed = escape_formulas(frame)
        if n_changed:
            echo(
                f"Note: {n_changed:,} texts look like formulas of a spreadsheet and have a quote (') before them: a "
                ".parquet file (--out) contains them unchanged.",
                err=True,
            )
    if out is None:
        echo(frame.write_csv(), end=False)
        return
    with atomic_write(out) as partial:
        frame.write_csv(partial) if out.suffix == ".csv" else frame.write_parquet(partial)
    echo(f"Wrote {out}: {frame.height:,} rows.", err=True)
