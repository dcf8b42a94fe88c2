"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[Path, typer.Argument(help="A .csv or .parquet table.")]
LabelColumn = Annotated[str, typer.Option("--label", help="The secret column.")]
Classes = Annotated[
    str, typer.Option(help='All values that the label may take, always in one order: no,yes or "a, or b",c.')
]
NoClasses = Annotated[
    str | None,
    typer.Option("--classes", help='All values that the label may take, always in one order: no,yes or "a, or b",c.'),
]
Range = Annotated[
    str | None, typer.Option("--range", help="For numbers instead of classes: low,high,step, as 0,100,1 for an age.")
]
Epsilon = Annotated[float, typer.Option(help="Privacy of each label: smaller is more private.")]
BudgetTotal = Annotated[
    float | None, typer.Option(help="The most that may ever be spent on this data set; at first, epsilon.")
]
LedgerFile = Annotated[Path | None, typer.Option("--ledger", help="The ledger; by default DATA.ledger.")]
Ids = Annotated[str | None, typer.Option(help="A column of row ids that identifies the data set; else all features.")]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(help="A column that is not looked at, another secret for example; may be given several times."),
]
MissingPublic = Annotated[
    bool, typer.Option("--missing-public", help="A missing label is a public fact: the row is unlabelled.")
]
UserColumn = Annotated[
    str | None,
    typer.Option(help="The owner of each row: epsilon is then for all labels of a user together. It is no feature."),
]
LabelsPerUser = Annotated[
    int | None,
    typer.Option(min=1, help="How many labels of a user may take part; other rows are dropped at random."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Delta = Annotated[float, typer.Option(help="What may be lost beyond epsilon; 0 is pure privacy, 1e-6 is usual.")]
DeltaTotal = Annotated[
    float | None, typer.Option(help="The largest delta that may ever be spent on this data set; at first, delta.")
]
FeatureKind = Annotated[
    str,
    typer.Option(
        "--features",
        help="table; embeddings: columns of numbers whose scale means something; images: a column of picture files; "
        "pairs: two columns of ids, a person and an item.",
    ),
]
ModelName = Annotated[
    str,
    typer.Option(
        help="auto, logistic (for numbers: ridge), trees, or a network: mlp, linear; resnet18, cnn ...; "
        "for pairs mf, ncf."
    ),
]
Encoder = Annotated[
    Path | None, typer.Option(help="For images: a folder of encoders, trained without labels by `labeldp encode`.")
]
ChooseBy = Annotated[
    str,
    typer.Option(
        "--choose-by",
        help="What makes a model the best of several: auto, accuracy, log-loss, or auc (two classes).",
    ),
]
Flip = Annotated[bool, typer.Option("--flip", help="A mirror image has the same label.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Option = Annotated[
    list[str] | None, typer.Option("--option", help="A recipe's own setting, as name=value; repeatable.")
]

Cross = Annotated[
    list[str] | None,
    typer.Option(
        "--cross",
        help='Two columns whose joint effect is in the model: month,day or "a, or b",c; repeatable. For the recipes '
        "auto and additive.",
    ),
]

# How the command line takes the parameters that errors of the library name (`LabelDPError.parameter`).
OPTION_OF_PARAMETER = {
    "allow_unproven": "--allow-unproven NAME",
    "classes": "--classes no,yes",
    "encoder": "--encoder FOLDER",
    "excluded_columns": "--leave-out COLUMN",
    "features": "--features KIND",
    "id_column": "--ids COLUMN",
    "labels_per_user": "--labels-per-user NUMBER",
    "ledger": "--ledger FILE",
    "missing": "--missing-public",
    "model": "--model NAME",
    "n_clusters": "--clusters NUMBER",
    "public": "--public TABLE",
    "public_labels": "--labels-public",
    "user_column": "--user-column COLUMN",
    "value_range": "--range LOW,HIGH,STEP",
}


def read_options(texts: list[str] | None) -> dict[str, Any]:
    """Read `name=value` settings: numbers as numbers, the rest as text."""
    from labeldp.core.errors import InputError

    options: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{text!r} is no setting: write --option name=value.")
        options[name.strip().replace("-", "_")] = _number(value.strip())
    return options


def _number(text: str) -> Any:
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
