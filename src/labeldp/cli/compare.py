"""`labeldp compare`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.options import (
    AsJson,
    ChooseBy,
    Classes,
    Cross,
    Data,
    Delta,
    DeltaTotal,
    Device,
    Encoder,
    FeatureKind,
    Flip,
    Ids,
    LabelColumn,
    LabelsPerUser,
    LeaveOut,
    LedgerFile,
    ModelName,
    Total,
    UserColumn,
)
from labeldp.cli.screen import echo, note_reuse, say, tell


def compare(
    data: Data,
    label: LabelColumn,
    classes: Classes,
    out: Annotated[Path, typer.Option(help="The folder for rows, table and plot; an unfinished one is gone on with.")],
    epsilons: Annotated[str, typer.Option(help="Separated by commas.")] = "0.5,1,2,4",
    recipes: Annotated[str, typer.Option(help="Separated by commas.")] = "auto,moments,noise-cluster,randres",
    cross: Cross = None,
    delta: Delta = 0.0,
    seeds: Annotated[int, typer.Option(min=1, help="How often each cell is trained.")] = 1,
    features: FeatureKind = "table",
    model: ModelName = "auto",
    encoder: Encoder = None,
    choose_by: ChooseBy = "auto",
    flip: Flip = False,
    device: Device = "auto",
    labels_public: Annotated[
        bool, typer.Option("--labels-public", help="A benchmark: nobody's labels are protected, and true ones score.")
    ] = False,
    test: Annotated[Path | None, typer.Option(help="A table that scores, with --labels-public; else a fifth.")] = None,
    budget: Total = None,
    delta_budget: DeltaTotal = None,
    ledger: LedgerFile = None,
    ids: Ids = None,
    leave_out: LeaveOut = None,
    user_column: UserColumn = None,
    labels_per_user: LabelsPerUser = None,
    as_json: AsJson = False,
) -> None:
    """Train several recipes at several epsilons; print a table and draw a plot."""
    from labeldp.core.errors import InputError
    from labeldp.core.guarantee import check_delta, check_epsilon
    from labeldp.data.files import TableFile
    from labeldp.privacy.vault.labeled_table import SecretTable

    try:
        wanted = sorted({float(word) for word in epsilons.split(",")})
    except ValueError:
        raise InputError("--epsilons must be numbers separated by commas, like 0.5,1,2.") from None
    for each in wanted:
        check_epsilon(each)
    check_delta(delta)
    kinds: dict[str, Any] = {"ids": ids, "users": user_column, "pairs": features == "pairs"}
    kinds |= {"left_out": leave_out or ()}
    table = SecretTable.open(data, label, classes, **kinds)
    if test is not None and not labels_public:
        raise InputError("True labels score only where they are declared public: add --labels-public, or drop --test.")
    from labeldp.recipes.crosses import CROSSING_RECIPES as CROSSING
    from labeldp.recipes.crosses import add_crosses, check_crosses, parse_cross
    from labeldp.report.comparison import print_comparison
    from labeldp.runs import compare as compared
    from labeldp.runs.config import Plan
    from labeldp.runs.feature_files import read_columns, read_features

    names = list(dict.fromkeys(name.strip() for name in recipes.split(",") if name.strip()))
    settings: dict[str, Any] = {"encoder": encoder, "flip": flip, "device": device, "labels_per_user": labels_per_user}
    settings |= {"choose_by": choose_by}
    crossing = next((name for name in names if name in CROSSING), names[0] if names else "")
    settings |= {"options": add_crosses(crossing, {}, [parse_cross(each) for each in cross or ()])}
    plan = Plan(max(wanted), delta, features=features, model=model, **settings)
    of = f"{data.name}, {label}, {classes}, {'public' if labels_public else 'private'}, {test.name if test else ''}"
    of += f", {user_column}" if user_column else ""
    of += f", without {', '.join(leave_out)}" if leave_out else ""
    of += f", crosses {plan.options['cross']}" if plan.options else ""
    check_crosses(crossing, plan.options, table.features)
    request = compared.Comparison(out, plan, names, wanted, seeds, of)
    request.check(table.space)
    epsilon, total_delta = request.total()
    unit = "user" if user_column else "label"
    other = None
    if test is not None:
        there = [name for name in leave_out or () if name in TableFile(test).schema.names]
        other = SecretTable.open(test, label, classes, **kinds | {"left_out": there})
    possible = (ledger, table.ledger_path, None if other is None else other.ledger_path)
    books = [book for book in possible if book is not None and book.exists()]
    if labels_public and books:
        raise InputError(
            f"{books[0].name} says that these labels are private: compare without --labels-public, or remove "
            "the ledger if they never were."
        )
    if labels_public:
        tell("labels are declared public: nothing is protected, every cell starts from a fresh budget")
        codes = table.public_codes()
        intake, rows = read_features(table, features, len(codes), flip)
        scores = None
        if other is not None:
            scores = (intake(read_columns(other.file, list(intake.columns), intake.texts)), other.public_codes())
        train = compared.on_public_labels(rows, codes, table, scores)
    else:
        if budget is None and not (ledger or table.ledger_path).exists():
            allow = f"--budget {float(epsilon):g}" + (f" --delta-budget {float(total_delta):g}" if total_delta else "")
            raise InputError(
                f"All cells together cost a {unit} epsilon {float(epsilon):g} and delta {float(total_delta):g}: allow "
                f"that by {allow}, or declare the labels public for a benchmark (--labels-public)."
            )
        totals: dict[str, Any] = {"budget": budget, "delta_budget": delta_budget, "labels_per_user": labels_per_user}
        vault = table.vault(float(epsilon), float(total_delta), **totals, ledger=ledger)
        train = compared.on_private_labels(table, vault, request)
        cost = f"epsilon {float(epsilon):g} and delta {float(total_delta):g}"
        echo(f"All cells together cost a {unit} {cost} at most.", err=True)
    found = request.run(train, tell)
    if not labels_public:
        note_reuse(vault)
    how = "on true labels, which are declared public" if labels_public else "measured privately"
    if as_json:
        total = None if labels_public else {"epsilon": float(epsilon), "delta": float(total_delta)}
        say({"cells": found, "measured": how, "total": total}, "", as_json)
    else:
        curves = {name: list(compared.summarise(found, name)) for name in names}
        print_comparison(
            curves, f"Accuracy {how}, ± half of its 95 % interval; {seeds} seed{'s' * (seeds > 1)}, delta {delta:g}"
        )
        echo(f"Wrote {out}: a row for each cell in cells.jsonl, and accuracy.png.")
