"""Sums by label for a fit: released sums made consistent with public totals, and estimates from noisy labels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from labeldp.learn.additive.design import Design, Floats
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments

RowSelection = NDArray[np.bool_] | slice


class Sums(NamedTuple):
    """Noisy sums of public columns by output.

    Attributes:
        values: (columns, outputs): for the second of two classes, or for each of several classes.
        noise_std: The standard deviation of the noise in each value.
    """

    values: Floats
    noise_std: float


def compute_consistent_sums(release: NoisyMoments) -> Sums:
    """Return the released sums, projected so that they add up to the public totals over the classes.

    Args:
        release: The sums A'Y of a public matrix.

    Returns:
        The sums for the second of two classes, or for all classes, in units of the matrix.
    """
    n_classes, noise_std = len(release.space), release.sigma / release.grid_scale
    values = release.moments / release.grid_scale
    values -= (values.sum(axis=1) - release.totals)[:, None] / n_classes
    return Sums(values[:, 1:], noise_std / 2**0.5) if n_classes == 2 else Sums(values, noise_std)


def estimate_response_sums(design: Design, responses: Release, row_selection: RowSelection) -> Sums:
    """Estimate the sums of columns from noisy labels of single rows, by the inverse channel.

    With an unbiased estimate u of a label y, which is 0 or 1, the mean of u^2 - u is the variance of its noise.

    Args:
        design: The design of the selected rows.
        responses: Noisy labels of all rows.
        row_selection: The selected rows: a mask, or a slice of all.

    Returns:
        Unbiased sums, with the standard deviation of the noise of one label, from the mean variance of all outputs.
    """
    label_estimates = responses.unbiased_labels(np.arange(responses.n_rows)[row_selection])
    if label_estimates.shape[1] == 2:
        label_estimates = label_estimates[:, 1:]
    variance = float(np.mean(np.square(label_estimates).mean(axis=0) - label_estimates.mean(axis=0)))
    return Sums(design.transpose_dot(label_estimates), max(variance, 0.0) ** 0.5)


def combine_estimates(first: Floats, variance: float, second: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Average two unbiased estimates of the same sums, weighted by the precision of their noise.

    Args:
        first: (sums, outputs), with independent noise.
        variance: The variance of its noise.
        second: (sums, outputs).
        covariance: The covariance of its noise, (sums, sums).

    Returns:
        The best linear unbiased estimate, and the covariance of its noise.
    """
    total_covariance = covariance + variance * np.eye(len(covariance))
    weight = variance * np.linalg.solve(total_covariance, np.eye(len(total_covariance)))
    combined_covariance = variance * (np.eye(len(total_covariance)) - weight)
    return first + weight @ (second - first), (combined_covariance + combined_covariance.T) / 2


def stack_functions(functions: Sequence[Floats | None], widths: Sequence[int]) -> Floats | None:
    """Return the functions of all columns as one block matrix, (bins, functions); None if there are only counts."""
    if all(values is None for values in functions):
        return None
    return block_diag(
        *[np.eye(width) if values is None else values for values, width in zip(functions, widths, strict=True)]
    )
