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
from labeldp.learn.density import intervals
from labeldp.learn.predictor import Predictor, load_predictor
from labeldp.runs.feature_files import read_columns
from labeldp.runs.record import intake_of, read_report


def predict(
    run: Path, data: Path, ids: str | None = None, note: Callable[[str], None] = lambda what: None
) -> pl.DataFrame:
    """Return the predicted label of each row of `data`, and the probability of each class, beside a column of `ids`.

    Ordered classes that are numbers, such as ratings, also have an expected number. Of the numbers of a range, `low`
    and `high` are what four of five labels should lie between, by what the model believes and by its measured error.
    What looks wrong about the rows is said to `note`.
    """
    intake = intake_of(run)
    file = TableFile(data)
    if ids is not None:
        file.column_type(ids)  # it is there, or that is said
    named = [] if ids is None else [read_columns(file, [ids], [ids]).to_series()]
    frame = read_columns(file, list(intake.columns), intake.text_columns)
    for name in intake.strangers(frame):
        note(f"No value of column {name!r} occurred in training: they count as unknown. Are they written as then?")
    model = load_predictor(run / "model", "auto")
    space = model.space
    if space is None:
        raise InputError(f"{run} is damaged: its model knows no classes.")
    try:
        told = _predicted_columns(model, space, intake(frame), float(read_report(run).get("interval_widening", 1.0)))
    except InputError:
        raise
    except (ValueError, TypeError):
        raise InputError(f"The columns of {data} have other types than those that the model was trained on.") from None
    return _beside(named, [pl.Series(name, values) for name, values in told.items()])


def _predicted_columns(model: Predictor, space: LabelSpace, features: Features, widening: float) -> dict[str, Any]:
    """Return the columns that say what a model predicts."""
    if space.step is not None:
        numbers = np.asarray(model.predict(features), np.float64) if len(features) else np.zeros(0)
        low, high = intervals(model, features, 0.8, widening)
        return {"prediction": numbers, "low": low, "high": high}
    chances = model.predict_proba(features) if len(features) else np.zeros((0, len(space)))  # some models need a row
    expected = {} if space.class_values is None else {"expected": chances @ space.class_values}
    named = {f"p({name})": chances[:, place] for place, name in enumerate(space)}
    return {"prediction": space.decode(chances.argmax(axis=1)).tolist()} | expected | named


def _beside(named: list[pl.Series], told: list[pl.Series]) -> pl.DataFrame:
    if {column.name for column in named} & {column.name for column in told}:
        raise InputError(f"The ids have the name of a column of predictions, {named[0].name!r}: rename them.")
    return pl.DataFrame([*named, *told])
