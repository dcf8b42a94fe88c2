"""The command `labeldp compare`: several recipes at several epsilons."""

from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.options import (
    AsJson,
    BudgetTotal,
    ChooseBy,
    Classes,
    Cross,
    Data,
    Delta,
    DeltaTotal,
    DeviceOption,
    Encoder,
    FeatureKindOption,
    Flip,
    Ids,
    LabelColumn,
    LabelsPerUser,
    LeaveOut,
    LedgerFile,
    ModelName,
    UserColumn,
)
from labeldp.cli.terminal import echo, note_reuse, print_result, show_status


def compare(
    data: Data,
    label: LabelColumn,
    classes: Classes,
    out: Annotated[Path, typer.Option(help="The folder for cells and plot; an unfinished comparison resumes.")],
    epsilons: Annotated[str, typer.Option(help="Separated by commas.")] = "0.5,1,2,4",
    recipes: Annotated[str, typer.Option(help="Separated by commas.")] = "auto,moments,noise-cluster,randres",
    cross: Cross = None,
    delta: Delta = 0.0,
    seeds: Annotated[int, typer.Option(min=1, help="The number of trainings of each cell, with different seeds.")] = 1,
    features: FeatureKindOption = "table",
    model: ModelName = "auto",
    encoder: Encoder = None,
    choose_by: ChooseBy = "auto",
    flip: Flip = False,
    device: DeviceOption = "auto",
    labels_public: Annotated[
        bool,
        typer.Option("--labels-public", help="For a benchmark: labels are public, unprotected, and used for scores."),
    ] = False,
    test: Annotated[
        Path | None, typer.Option(help="With --labels-public: the test table; by default, a fifth of the rows.")
    ] = None,
    budget: BudgetTotal = None,
    delta_budget: DeltaTotal = None,
    ledger: LedgerFile = None,
    ids: Ids = None,
    leave_out: LeaveOut = None,
    user_column: UserColumn = None,
    labels_per_user: LabelsPerUser = None,
    as_json: AsJson = False,
) -> None:
    """Train several recipes at several epsilons, print a table and draw a plot."""
    from labeldp.core.errors import InputError
    from labeldp.core.guarantee import check_delta, check_epsilon
    from labeldp.data.files import TableFile
    from labeldp.privacy.vault.labeled_table import SecretTable

    try:
        epsilon_values = sorted({float(word) for word in epsilons.split(",")})
    except ValueError:
        raise InputError("--epsilons must be numbers separated by commas, like 0.5,1,2.") from None
    for epsilon_value in epsilon_values:
        check_epsilon(epsilon_value)
    check_delta(delta)
    table_options: dict[str, Any] = {"id_column": ids, "user_column": user_column, "is_pairs": features == "pairs"}
    table_options |= {"excluded_columns": leave_out or ()}
    table = SecretTable.open(data, label, classes, **table_options)
    if test is not None and not labels_public:
        raise InputError("A test table needs public labels: add --labels-public, or leave --test out.")
    from labeldp.recipes.feature_crosses import CROSSING_RECIPES, add_crosses, check_crosses, parse_cross
    from labeldp.report.comparison import print_comparison
    from labeldp.runs import compare as comparison
    from labeldp.runs.config import TrainConfig
    from labeldp.runs.feature_files import read_columns, read_features

    recipe_names = list(dict.fromkeys(name.strip() for name in recipes.split(",") if name.strip()))
    settings: dict[str, Any] = {"encoder": encoder, "flip": flip, "device": device, "labels_per_user": labels_per_user}
    settings |= {"choose_by": choose_by}
    cross_recipe = next(
        (name for name in recipe_names if name in CROSSING_RECIPES), recipe_names[0] if recipe_names else ""
    )
    settings |= {"options": add_crosses(cross_recipe, {}, [parse_cross(item) for item in cross or ()])}
    config = TrainConfig(max(epsilon_values), delta, features=features, model=model, **settings)
    description = (
        f"{data.name}, {label}, {classes}, {'public' if labels_public else 'private'}, {test.name if test else ''}"
    )
    description += f", {user_column}" if user_column else ""
    description += f", without {', '.join(leave_out)}" if leave_out else ""
    description += f", crosses {config.options['cross']}" if config.options else ""
    check_crosses(cross_recipe, config.options, table.feature_columns)
    comparison_request = comparison.Comparison(out, config, recipe_names, epsilon_values, seeds, description)
    comparison_request.check(table.space)
    epsilon, total_delta = comparison_request.total_cost()
    unit = "user" if user_column else "label"
    test_table = None
    if test is not None:
        absent = [name for name in leave_out or () if name in TableFile(test).schema.names]
        test_table = SecretTable.open(test, label, classes, **table_options | {"excluded_columns": absent})
    ledger_paths = (ledger, table.default_ledger_path, None if test_table is None else test_table.default_ledger_path)
    ledgers = [path for path in ledger_paths if path is not None and path.exists()]
    if labels_public and ledgers:
        raise InputError(
            f"{ledgers[0].name} records these labels as private: compare without --labels-public, or remove "
            "the ledger if they never were private."
        )
    if labels_public:
        show_status("labels are declared public: they are not protected, and every cell has a new budget")
        codes = table.read_public_codes()
        reader, X = read_features(table, features, len(codes), flip)
        test_data = None
        if test_table is not None:
            test_data = (
                reader(read_columns(test_table.file, list(reader.columns), reader.text_columns)),
                test_table.read_public_codes(),
            )
        train_cell = comparison.make_public_cell_trainer(X, codes, table, test_data)
    else:
        if budget is None and not (ledger or table.default_ledger_path).exists():
            options = f"--budget {float(epsilon):g}" + (
                f" --delta-budget {float(total_delta):g}" if total_delta else ""
            )
            raise InputError(
                f"All cells together cost each {unit} epsilon {float(epsilon):g} and delta {float(total_delta):g}: "
                f"allow this with {options}, or declare the labels public for a benchmark (--labels-public)."
            )
        totals: dict[str, Any] = {"budget": budget, "delta_budget": delta_budget, "labels_per_user": labels_per_user}
        vault = table.vault(float(epsilon), float(total_delta), **totals, ledger=ledger)
        train_cell = comparison.make_private_cell_trainer(table, vault, comparison_request)
        cost = f"epsilon {float(epsilon):g} and delta {float(total_delta):g}"
        echo(f"All cells together cost each {unit} at most {cost}.", err=True)
    cells = comparison_request.run(train_cell, show_status)
    if not labels_public:
        note_reuse(vault)
    method = "on true labels, which are declared public" if labels_public else "measured privately"
    if as_json:
        total = None if labels_public else {"epsilon": float(epsilon), "delta": float(total_delta)}
        print_result({"cells": cells, "measured": method, "total": total}, "", as_json)
    else:
        curves = {name: list(comparison.summarize(cells, name)) for name in recipe_names}
        print_comparison(
            curves, f"Accuracy {method}, ± half of its 95 % interval; {seeds} seed{'s' * (seeds > 1)}, delta {delta:g}"
        )
        echo(f"Wrote {out}: one line for each cell in cells.jsonl, and accuracy.png.")
