"""The command `labeldp train`: a private training from a table to a run folder."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from labeldp.cli.options import (
    AsJson,
    BudgetTotal,
    ChooseBy,
    Cross,
    Data,
    Delta,
    DeltaTotal,
    DeviceOption,
    Encoder,
    Epsilon,
    FeatureKindOption,
    Flip,
    Ids,
    LabelColumn,
    LabelsPerUser,
    LeaveOut,
    LedgerFile,
    MissingPublic,
    ModelName,
    Option,
    OptionalClasses,
    Range,
    UserColumn,
    read_options,
)
from labeldp.cli.terminal import StatusDisplay, echo, note_reuse, print_result, progress_bar


def train(
    data: Data,
    label: LabelColumn,
    epsilon: Epsilon,
    out: Annotated[Path, typer.Option(help="The new run folder.")],
    classes: OptionalClasses = None,
    value_range: Range = None,
    task: Annotated[
        str | None, typer.Option(help="classification or regression; by default, --classes or --range decides.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="The recipe by name; `labeldp plan` compares recipes.")] = "auto",
    option: Option = None,
    cross: Cross = None,
    engine: Annotated[
        str | None, typer.Option(help="Where teachers train: here, processes, ray, or a cluster's ray://HOST:PORT.")
    ] = None,
    public: Annotated[
        Path | None, typer.Option(help="A table of unlabeled public rows that teachers vote on: protects records.")
    ] = None,
    allow_unproven: Annotated[
        str | None, typer.Option(help="Allow, by name, a recipe whose privacy claim is false.")
    ] = None,
    delta: Delta = 0.0,
    features: FeatureKindOption = "table",
    model: ModelName = "auto",
    encoder: Encoder = None,
    choose_by: ChooseBy = "auto",
    flip: Flip = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="For networks; the default depends on the number of rows.")
    ] = None,
    device: DeviceOption = "auto",
    budget: BudgetTotal = None,
    delta_budget: DeltaTotal = None,
    ledger: LedgerFile = None,
    ids: Ids = None,
    leave_out: LeaveOut = None,
    missing_public: MissingPublic = False,
    user_column: UserColumn = None,
    labels_per_user: LabelsPerUser = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=2**32 - 1, help="The seed of training and of the held-out rows; privacy noise has none."
        ),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a model on a table with private labels: a classifier, or a regressor for numeric labels."""
    from labeldp.core import unproven
    from labeldp.core.atomic_files import check_writable
    from labeldp.core.errors import InputError
    from labeldp.core.guarantee import check_delta, check_epsilon
    from labeldp.privacy.vault.failure_notes import note_charge_on_failure
    from labeldp.privacy.vault.labeled_table import SecretTable, check_total_budget

    check_epsilon(epsilon)
    check_delta(delta)
    check_writable(out)
    if task not in (None, "classification", "regression"):
        raise InputError("--task must be classification or regression.")
    if task is not None and (task == "regression") != (value_range is not None):
        raise InputError("Regression needs --range low,high,step, and classification needs --classes.")
    missing: Literal["error", "public"] = "public" if missing_public else "error"
    table_options: dict[str, Any] = {
        "is_pairs": features == "pairs",
        "label_range": value_range,
        "excluded_columns": leave_out or (),
    }
    table = SecretTable.open(data, label, classes, missing, ids, user_column, **table_options)
    from labeldp.recipes.feature_crosses import add_crosses, parse_cross
    from labeldp.recipes.progress import Progress
    from labeldp.runs.config import TrainConfig
    from labeldp.runs.training import train_to_folder as train_run

    if allow_unproven is not None:
        unproven.allow_unproven(allow_unproven)
    training_options: dict[str, Any] = {
        "epochs": epochs,
        "device": device,
        "seed": seed,
        "progress": not as_json,
        "public": public,
    }
    training_options |= {"labels_per_user": labels_per_user, "choose_by": choose_by}
    options = read_options(option) | ({} if engine is None else {"engine": engine})
    options = add_crosses(recipe, options, [parse_cross(names) for names in cross or ()])
    config = TrainConfig(epsilon, delta, recipe, options, features, model, encoder, flip, **training_options)
    config.check(table.space, table)
    check_total_budget(epsilon, budget)
    with progress_bar(table.file.n_rows) as progress:
        progress.start("reading labels")
        totals: dict[str, Any] = {"budget": budget, "delta_budget": delta_budget, "labels_per_user": labels_per_user}
        vault = table.vault(epsilon, delta, **totals, ledger=ledger, progress=progress.advance)
    shown = set[str]()

    def note(message: str) -> None:
        if message not in shown:
            shown.add(message)
            echo(message, err=True)

    with note_charge_on_failure(vault), StatusDisplay() as steps:

        def show(message: str) -> None:
            (note if message.startswith("Note:") else steps.show_status)(message)

        report = train_run(table, vault, config, out, show, Progress(steps.show_progress))
    for warning in report["warnings"]:
        note(f"Note: {warning}")
    note_reuse(vault)
    if report["users"] and not as_json:
        echo(f"Note: {_describe_users(report['users'])}", err=True)
    print_result(report, _format_result(out, report, vault.budget.epsilon), as_json)


def _format_result(out: Path, report: dict[str, Any], budget: float) -> str:
    spent, delta = float(report["spent"]["epsilon"]), report["spent"]["delta"]
    cost = f"epsilon {spent:g} of {budget:g}" + (f" and delta {delta:g}" if delta else "")
    return f"Wrote {out}: {_describe_score(report)}. Each {report['spent']['unit']} has spent {cost} so far."


def _describe_users(users: dict[str, Any]) -> str:
    """Describe how many labels of each user were used."""
    max_labels, n_dropped = users["labels_per_user"], users["dropped"]
    used_text = (
        f"at most {max_labels} label{'s were' if max_labels > 1 else ' was'} used of each of {users['count']:,} users"
    )
    dropped_text = (
        f"{n_dropped:,} of {users['rows'] + n_dropped:,} rows were dropped at random"
        if n_dropped
        else "no row was dropped"
    )
    label_cost = users["label"]
    cost_text = f"epsilon {float(label_cost['epsilon']):.4g}" + (
        f" and delta {label_cost['delta']:g}" if label_cost["delta"] else ""
    )
    return f"{used_text}, and {dropped_text}. Each label in the training has {cost_text} by itself."


def _describe_score(report: dict[str, Any]) -> str:
    """Describe the score: the accuracy, or for numeric labels the root mean squared error."""
    score, is_numeric = report["score"], report["space"]["step"] is not None
    quantity = "error" if is_numeric else "accuracy"
    if score is None:
        return f"too few rows or users for a held-out set, so its {quantity} is not measured"
    value, low, high = score["rmse" if is_numeric else "accuracy"]
    method = f"measured privately on {score['n_rows']:,} held-out rows"
    if is_numeric and value is None and high is not None:
        return f"root mean squared error below {high:.3g} (95 % confidence, {method})"
    if value is None:
        return f"its {quantity} cannot be distinguished from noise ({method})"
    if is_numeric:
        return f"root mean squared error about {value:.3g} (95 % interval {low:.3g} to {high:.3g}, {method})"
    return f"accuracy about {value:.1%} (95 % interval {low:.1%} to {high:.1%}, {method})"
