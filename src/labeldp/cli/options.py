"""Arguments and options that several commands share, and the options that error messages name."""

from pathlib import Path
from typing import Annotated, Any

import typer

Data = Annotated[Path, typer.Argument(help="A .csv or .parquet table.")]
LabelColumn = Annotated[str, typer.Option("--label", help="The column with the private label.")]
Classes = Annotated[str, typer.Option(help='All values of the label, always in the same order: no,yes or "a, or b",c.')]
OptionalClasses = Annotated[
    str | None,
    typer.Option("--classes", help='All values of the label, always in the same order: no,yes or "a, or b",c.'),
]
Range = Annotated[
    str | None,
    typer.Option("--range", help="For numeric labels instead of classes: low,high,step; 0,100,1 for an age."),
]
Epsilon = Annotated[float, typer.Option(help="The privacy loss of each label: smaller is more private.")]
BudgetTotal = Annotated[
    float | None,
    typer.Option(help="The total epsilon of this data set; by default that of its ledger, or epsilon for a new one."),
]
LedgerFile = Annotated[Path | None, typer.Option("--ledger", help="The ledger file; by default DATA.ledger.")]
Ids = Annotated[
    str | None, typer.Option(help="A column of row ids that identifies the data set; by default, all features do.")
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(help="A column to exclude, another private label for example; repeatable."),
]
MissingPublic = Annotated[
    bool, typer.Option("--missing-public", help="The fact that a label is missing is public: the row is unlabeled.")
]
UserColumn = Annotated[
    str | None,
    typer.Option(
        help="The column with the owner of each row. Epsilon then covers all labels of a user. It is not a feature."
    ),
]
LabelsPerUser = Annotated[
    int | None,
    typer.Option(min=1, help="The maximum number of labels per user; surplus rows are dropped at random."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Delta = Annotated[
    float, typer.Option(help="The delta of the guarantee: 0 is pure differential privacy, 1e-6 is usual.")
]
DeltaTotal = Annotated[
    float | None,
    typer.Option(help="The total delta of this data set; by default that of its ledger, or delta for a new one."),
]
FeatureKindOption = Annotated[
    str,
    typer.Option(
        "--features",
        help="table; embeddings: numeric columns on a common scale; images: a column of image files; "
        "pairs: two columns of ids, a person and an item.",
    ),
]
ModelName = Annotated[
    str,
    typer.Option(
        help="auto, logistic (for numeric labels: ridge), trees, or a network: mlp, linear; resnet18, cnn ...; "
        "for pairs mf, ncf."
    ),
]
Encoder = Annotated[
    Path | None, typer.Option(help="For images: a folder of encoders that `labeldp encode` trained without labels.")
]
ChooseBy = Annotated[
    str,
    typer.Option(
        "--choose-by",
        help="The criterion of model selection: auto, accuracy, log-loss, or auc (two classes).",
    ),
]
Flip = Annotated[bool, typer.Option("--flip", help="Declare that a mirrored image has the same label.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Option = Annotated[
    list[str] | None, typer.Option("--option", help="An option of the recipe, as name=value; repeatable.")
]

Cross = Annotated[
    list[str] | None,
    typer.Option(
        "--cross",
        help='Two columns whose interaction the model includes: month,day or "a, or b",c; repeatable. For the '
        "recipes auto and additive.",
    ),
]

# The option that sets each parameter that errors of the library name (`LabelDPError.parameter`).
OPTION_OF_PARAMETER = {
    "allow_unproven": "--allow-unproven NAME",
    "choose_by": "--choose-by CRITERION",
    "classes": "--classes no,yes, or --range LOW,HIGH,STEP",
    "delta": "--delta NUMBER",
    "device": "--device NAME",
    "encoder": "--encoder FOLDER",
    "excluded_columns": "--leave-out COLUMN",
    "features": "--features KIND",
    "id_column": "--ids COLUMN",
    "labels_per_user": "--labels-per-user NUMBER",
    "ledger": "--ledger FILE",
    "missing": "--missing-public",
    "model": "--model NAME",
    "n_answers": "--answers NUMBER",
    "n_classes": "--classes NUMBER",
    "n_clusters": "--clusters NUMBER",
    "n_queries": "--queries NUMBER",
    "n_rows": "--rows NUMBER",
    "positives": "--positives NUMBER",
    "public": "--public TABLE",
    "public_labels": "--labels-public",
    "purity": "--purity NUMBER",
    "user_column": "--user-column COLUMN",
    "label_range": "--range LOW,HIGH,STEP",
}


def read_options(texts: list[str] | None) -> dict[str, Any]:
    """Parse `name=value` settings: numbers become numbers, all other values stay texts."""
    from labeldp.core.errors import InputError

    options: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{text!r} is not a setting: write --option name=value.")
        options[name.strip().replace("-", "_")] = _parse_number(value.strip())
    return options


def _parse_number(text: str) -> Any:
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
