"""The command `labeldp privatize`: a copy of a table with noisy labels."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from labeldp.cli.options import (
    AsJson,
    BudgetTotal,
    Data,
    Epsilon,
    Ids,
    LabelColumn,
    LabelsPerUser,
    LeaveOut,
    LedgerFile,
    MissingPublic,
    OptionalClasses,
    Range,
    UserColumn,
)
from labeldp.cli.terminal import ProgressBar, note_reuse, print_result, progress_bar

if TYPE_CHECKING:
    from labeldp.privacy.vault.labeled_table import SecretTable


def privatize(
    data: Data,
    label: LabelColumn,
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="The new table with noisy labels.")],
    classes: OptionalClasses = None,
    value_range: Range = None,
    budget: BudgetTotal = None,
    ledger: LedgerFile = None,
    ids: Ids = None,
    leave_out: LeaveOut = None,
    missing_public: MissingPublic = False,
    user_column: UserColumn = None,
    labels_per_user: LabelsPerUser = None,
    as_json: AsJson = False,
) -> None:
    """Write a copy of a table whose labels are replaced by randomized response; numeric labels get Laplace noise.

    Class names and all other cells are copied unchanged, even where a spreadsheet would execute them as formulas. The
    copy can therefore be used for training like the table.
    """
    from labeldp.core.atomic_files import check_writable
    from labeldp.privacy.mechanisms import DiscreteLaplace, Mechanism, RandomizedResponse
    from labeldp.privacy.noise.samplers import laplace_deviation
    from labeldp.privacy.vault.failure_notes import note_charge_on_failure
    from labeldp.privacy.vault.labeled_table import SecretTable, check_total_budget
    from labeldp.releases.responses import response_probabilities

    base_mechanism: Mechanism = RandomizedResponse(epsilon) if value_range is None else DiscreteLaplace(epsilon)
    missing: Literal["public", "error"] = "public" if missing_public else "error"
    table = SecretTable.open(
        data, label, classes, missing, ids, user_column, label_range=value_range, excluded_columns=leave_out or ()
    )
    table.check_label_type()
    check_writable(out, data.suffix)
    check_total_budget(epsilon, budget)
    with progress_bar(table.file.n_rows) as progress:
        progress.start("checking output")
        _check_output(table, out, progress)
        progress.start("reading labels")
        totals: dict[str, Any] = {"budget": budget, "labels_per_user": labels_per_user}
        vault = table.vault(epsilon, **totals, ledger=ledger, progress=progress.advance)
        progress.start("drawing noise")
        row_mask = vault.cap_labels_per_user(labels_per_user)
        mechanism = vault.scaled_to_unit(base_mechanism, row_mask)
        with note_charge_on_failure(vault):
            codes = vault.release(mechanism, row_mask).labels()
            progress.start("writing")
            n_done = 0

            def change(batch: Any) -> Any:
                nonlocal n_done
                noisy = table.replace_labels(batch, codes[n_done : n_done + batch.num_rows])
                n_done += batch.num_rows
                progress.advance(batch.num_rows)
                return noisy

            facts = {"labeldp.guarantee": json.dumps(vault.guarantee().to_json())}
            table.file.rewrite(out, change, label, facts, table.included_columns)
    note_reuse(vault)
    spent, n_dropped = vault.guarantee(), int((vault.labeled_mask & ~row_mask).sum())
    dropped_text = f", of which {n_dropped:,} have no label (labels per user: {labels_per_user})" if n_dropped else ""
    noise_facts: dict[str, float]
    if table.space.step is None:
        noise_facts = {"unchanged": response_probabilities(mechanism.epsilon, len(table.space))[0]}
        noise_text = f"Each label is unchanged with probability {noise_facts['unchanged']:.3f}"
    else:
        noise_facts = {"deviation": table.space.step * laplace_deviation(mechanism.epsilon / (len(table.space) - 1))}
        noise_text = f"Each number has noise of standard deviation {noise_facts['deviation']:.3g}, clamped to the range"
    print_result(
        {"out": str(out), "rows": vault.n_rows, "dropped": n_dropped, **noise_facts, "guarantee": spent.to_json()},
        f"Wrote {out}: {vault.n_rows:,} rows{dropped_text}. {noise_text}; "
        f"each {vault.unit} has now spent epsilon {spent.epsilon:g} of {vault.budget.epsilon:g}.",
        as_json,
    )


def _check_output(table: "SecretTable", out: Path, progress: ProgressBar) -> None:
    """Check, before any charge, that the output can hold every declared class: write rows with public values only."""
    import numpy as np
    import pyarrow as pa

    from labeldp.core.errors import InputError

    codes = np.arange(-1, len(table.space))  # a missing label and every class

    def change(batch: Any) -> Any:
        progress.advance(batch.num_rows)
        try:
            return table.replace_labels(batch, np.resize(codes, batch.num_rows))
        except pa.ArrowException:
            dtype = table.file.column_type(table.label)
        raise InputError(
            f"Column {table.label!r} holds {dtype}, which cannot hold every declared class: declare the classes of its "
            "labels, or write it in another type."
        )

    table.file.rehearse(out, change, table.label, {}, table.included_columns, min_rows=len(codes))
