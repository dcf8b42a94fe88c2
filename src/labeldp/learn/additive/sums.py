"""Released sums by label as a fit takes them: without the noise that public totals reveal."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labeldp.learn.additive.design import Floats
from labeldp.learn.additive.fit import Line
from labeldp.releases.moments import NoisyMoments


class Sums(NamedTuple):
    """Noisy sums of public columns by output.

    Attributes:
        values: (columns, outputs): of the second of two classes, or of each of several classes.
        noise: The deviation of the noise in each value.
    """

    values: Floats
    noise: float


def consistent_sums(release: NoisyMoments) -> Sums:
    """Return the released sums, shifted so that they add up to the public totals over the classes.

    Args:
        release: The sums A'Y of a public matrix.

    Returns:
        The sums of the second class of two, or of all classes, in units of the matrix.
    """
    classes, noise = len(release.space), release.sigma / release.scale
    values = release.moments / release.scale
    values -= (values.sum(axis=1) - release.totals)[:, None] / classes
    return Sums(values[:, 1:], noise / 2**0.5) if classes == 2 else Sums(values, noise)


def with_lines(sums: Sums, lines: Sequence[Line]) -> Sums:
    """Estimate the sums of bins from themselves and from the sums along lines, which were released with them.

    Let c be the exact sums of a column's bins, z = c + e and t = l'c + f, where e and f are noise of one variance s^2.
    The best linear unbiased estimate of c is z + l (t - l'z) / (1 + l'l), with covariance s^2 (I + ll')^-1.

    Args:
        sums: Sums of bins, followed by one sum for each line: (bins + lines, outputs).
        lines: The lines, in the order of their sums.

    Returns:
        The sums of bins, with the deviation of the noise that they had before.
    """
    bins = len(sums.values) - len(lines)
    values = sums.values[:bins].copy()
    for line, along in zip(lines, sums.values[bins:], strict=True):
        own = values[line.place]
        own += np.outer(line.values, along - line.values @ own) / (1 + line.values @ line.values)
    return Sums(values, sums.noise)


def level_columns(sums: Sums, starts: NDArray[np.int64], rows: int) -> tuple[Sums, Floats]:
    """Estimate the rows of each output from all columns of bins, and shift each column to that estimate.

    The bins of every column hold each row once, so that their sums estimate the same number. A column of b bins
    estimates it with b times the variance of one bin.

    Args:
        sums: Sums of one-hot bins.
        starts: The place of the first bin of each column, and the number of all bins at the end.
        rows: The number of rows that were summed.

    Returns:
        The shifted sums, and the number of rows of each output, (outputs,).
    """
    values, parts = sums.values.copy(), [slice(first, last) for first, last in pairwise(starts)]
    widths = np.diff(starts)
    found = np.stack([values[part].sum(axis=0) for part in parts])
    total = np.average(found, axis=0, weights=1 / widths)
    total = np.clip(total, 0.5, rows - 0.5)
    for part, own, width in zip(parts, found, widths, strict=True):
        values[part] -= (own - total) / width
    return Sums(values, sums.noise), total
