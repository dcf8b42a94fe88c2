"""The score section of a card."""

from typing import Any

from labeldp.report.card.blocks import Block, TableBlock
from labeldp.report.card.formatting import truncate

# The maximum number of classes in the table.
_MAX_CLASSES = 12
_TITLES = {
    "accuracy": "Accuracy",
    "auc": "AUC",
    "log_loss": "Log-loss",
    "calibration_error": "Calibration error",
    "rmse": "Root mean squared error",
    "mae": "Mean absolute error",
}
_FRACTIONS = ("accuracy", "calibration_error")
_IN_UNITS = ("rmse", "mae")  # in units of the labels
_HEADER = ("Figure", "Estimate", "95 % interval")


def score_blocks(score: dict[str, Any] | None, classes: list[Any]) -> list[Block]:
    """Return the measured scores with intervals and the method."""
    if score is None:
        return ["Not measured: there were no held-out rows."]
    blocks: list[Block] = [_accuracy_sentence(score)] if "accuracy" in score else []
    if "rmse" in score:
        blocks.append("Errors are differences between predictions and labels, in units of the label.")
    if score.get("method"):
        blocks.append(f"Method: {score['method']}.")
    measured = measured_intervals(score)
    if len(measured) > 1 or "accuracy" not in score:
        rows = tuple((title, *texts) for title, *texts in measured)
        method = "on clean labels" if uses_clean_labels(score) else "without clean labels"
        blocks.append(TableBlock(f"Measured on held-out rows, {method}", _HEADER, rows))
    return blocks + _class_blocks(score, classes)


def uses_clean_labels(score: dict[str, Any]) -> bool:
    """Whether a score was measured on clean labels, which no epsilon accounts for."""
    return bool(score.get("clean")) or "clean label" in str(score.get("method", "")).lower()


def measured_intervals(score: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the title, estimate and interval of each measured score."""
    return [
        (_TITLES.get(name, name.replace("_", " ")), *_format_interval(value, _unit_of(name)))
        for name, value in score.items()
        if isinstance(value, list) and len(value) == 3 and not any(isinstance(each, list) for each in value)
    ]


def _unit_of(name: str) -> str:
    return "%" if name in _FRACTIONS else "of labels" if name in _IN_UNITS else ""


def _accuracy_sentence(score: dict[str, Any]) -> str:
    value, low, high = score["accuracy"]
    if value is None:
        return f"Accuracy cannot be measured on {score['n_rows']:,} rows at this epsilon."
    return f"Accuracy {value:.1%}, 95 % interval {low:.1%} to {high:.1%}."


def _class_blocks(score: dict[str, Any], classes: list[Any]) -> list[Block]:
    recall, precision = score.get("recall"), score.get("precision")
    if not recall or not precision or len(recall) != len(classes):
        return []
    measured = list(zip(classes, recall, precision, strict=True))
    known = [each for each in measured if each[1][0] is not None or each[2][0] is not None][:_MAX_CLASSES]
    blocks = list[Block]()
    if known:
        rows = tuple(
            (truncate(str(name), 48), _format_with_interval(class_recall), _format_with_interval(class_precision))
            for name, class_recall, class_precision in known
        )
        blocks.append(TableBlock("By class, with 95 % intervals", ("Class", "Recall", "Precision"), rows))
    if len(known) < len(classes):
        blocks.append(
            f"{len(known)} of {len(classes):,} classes are shown; the JSON format of the card has all of them, also "
            "those with too few rows."
        )
    return blocks


def _format_interval(measured: list[float | None], unit: str) -> tuple[str, str]:
    value, low, high = measured
    return _format_number(value, unit), f"{_format_number(low or 0.0, unit)} to {_format_number(high, unit)}"


def _format_with_interval(measured: list[float | None]) -> str:
    value, interval = _format_interval(measured, "%")
    return value if measured[0] is None else f"{value} ({interval})"


def _format_number(value: float | None, unit: str) -> str:
    if value is None:
        return "unknown"
    if unit == "of labels":
        return f"{value:.3g}"
    return f"{value:.1%}" if unit == "%" else f"{value:.3f}"
