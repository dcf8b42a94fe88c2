"""Predictions of a run for the rows of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.data.files import TableFile
from labeldp.learn.density import predict_intervals
from labeldp.learn.predictor import Predictor, load_predictor
from labeldp.runs.feature_files import read_columns
from labeldp.runs.record import load_reader, read_record


def predict(
    run: Path, data: Path, ids: str | None = None, warn: Callable[[str], None] = lambda message: None
) -> pl.DataFrame:
    """Return the predicted label of each row and the probability of each class.

    For ordered numeric classes, such as ratings, there is also the expected value. For numeric labels, `low` and `high`
    bound an interval that contains 80 % of the labels according to the predictive density and the measured error.

    Args:
        run: The run folder.
        data: The table with the feature columns of the training.
        ids: A column of row ids, which becomes the first column of the result.
        warn: Called with a message about each column whose values never occurred in training.

    Returns:
        One row of predictions for each row of `data`.
    """
    reader = load_reader(run)
    file = TableFile(data)
    if ids is not None:
        file.column_type(ids)  # raises an error if the column is missing
    id_series = [] if ids is None else [read_columns(file, [ids], [ids]).to_series()]
    frame = read_columns(file, list(reader.columns), reader.text_columns)
    for name in reader.unseen_categories(frame):
        warn(
            f"No value of column {name!r} occurred in training: all are treated as unknown. Check how they are written."
        )
    model = load_predictor(run / "model", "auto")
    space = model.space
    if space is None:
        raise InputError(f"{run} is damaged: its model has no label space.")
    try:
        prediction_columns = _predicted_columns(
            model, space, reader(frame), float(read_record(run).get("interval_widening", 1.0))
        )
    except InputError:
        raise
    except (ValueError, TypeError):
        raise InputError(f"The columns of {data} have other types than those that the model was trained on.") from None
    return _join_ids(id_series, [pl.Series(name, values) for name, values in prediction_columns.items()])


def _predicted_columns(model: Predictor, space: LabelSpace, features: Features, widening: float) -> dict[str, Any]:
    """Return the columns of predictions by name."""
    if space.step is not None:
        targets = np.asarray(model.predict(features), np.float64) if len(features) else np.zeros(0)
        low, high = predict_intervals(model, features, 0.8, widening)
        return {"prediction": targets, "low": low, "high": high}
    # Some models cannot predict for zero rows.
    probabilities = model.predict_proba(features) if len(features) else np.zeros((0, len(space)))
    expected = {} if space.class_values is None else {"expected": probabilities @ space.class_values}
    by_class = {f"p({name})": probabilities[:, code] for code, name in enumerate(space)}
    return {"prediction": space.decode(probabilities.argmax(axis=1)).tolist()} | expected | by_class


def _join_ids(id_series: list[pl.Series], predictions: list[pl.Series]) -> pl.DataFrame:
    if {column.name for column in id_series} & {column.name for column in predictions}:
        raise InputError(f"The id column has the name of a column of predictions, {id_series[0].name!r}: rename it.")
    return pl.DataFrame([*id_series, *predictions])
