"""Advice for numeric labels: the exact root mean squared error of each mechanism."""

import math
from typing import Any

import numpy as np

from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_epsilon
from labeldp.core.label_space import LabelSpace
from labeldp.privacy.mechanisms.numeric_responses import MAX_RANGE_VALUES, DiscreteLaplace, RROnBins, UnbiasedBins


def number_advice(n_rows: int, space: LabelSpace, epsilon: float) -> dict[str, Any]:
    """Return the root mean squared errors of the mechanisms under a uniform prior on the range."""
    check_epsilon(epsilon)
    if n_rows < 1:
        raise InputError("n_rows must be a whole number from 1.", parameter="n_rows")
    if len(space) > MAX_RANGE_VALUES:
        raise InputError(f"The range has {len(space)} values and a plan takes {MAX_RANGE_VALUES}: widen the step.")
    uniform_prior = np.full(len(space), 1 / len(space))
    low, high = float(space.classes[0]), float(space.classes[-1])
    laplace = DiscreteLaplace(epsilon)
    return {
        "rows": n_rows,
        "range": [low, high, space.step],
        "epsilon": epsilon,
        "guess": math.sqrt(np.var(np.array(space.classes))),
        "RROnBins": math.sqrt(RROnBins(epsilon, uniform_prior).expected_loss(space)),
        "UnbiasedBins": math.sqrt(UnbiasedBins(epsilon, uniform_prior).expected_loss(space)),
        "DiscreteLaplace": math.sqrt(laplace.expected_loss(space, uniform_prior)),
        "mean of all": math.sqrt(2) * (high - low) / epsilon / n_rows,
        "recommended": "auto",
    }


def format_number_advice(advice: dict[str, Any]) -> str:
    """Return the advice as text."""
    low, high, step = advice["range"]
    setting = f"numbers from {low:g} to {high:g} in steps of {step:g}, epsilon {advice['epsilon']:g}"
    descriptions = {
        "guess": ("a guess without any label", ""),
        "RROnBins": ("a number of RROnBins", "as evidence for training: the recipe bins"),
        "UnbiasedBins": ("a number of UnbiasedBins", "unbiased: for sums and means"),
        "DiscreteLaplace": ("a number of DiscreteLaplace", "the recipe laplace, a baseline"),
        "mean of all": ("the mean of all labels", "by noisy sums: the recipe sums, a linear model"),
    }
    lines = [
        f"{advice['rows']:,} rows, {setting}",
        "",
        "Root mean squared error, if all these numbers were equally likely:",
        *(f"  {name:<28} {advice[key]:<8.3g} {use}".rstrip() for key, (name, use) in descriptions.items()),
        "",
        "Recommended: auto. It selects sums or bins by public facts, or for many rows by a private selection.",
    ]
    return "\n".join(lines)
