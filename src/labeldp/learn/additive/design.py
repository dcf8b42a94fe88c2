"""Public design matrices with the products that a fit to sums needs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array, eye_array

Floats = NDArray[np.float64]


class Design(ABC):
    """A public matrix A of (rows, columns)."""

    n_columns: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def dot(self, weights: Floats) -> Floats:
        """Return A times weights of shape (columns, outputs): (rows, outputs)."""

    @abstractmethod
    def transpose_dot(self, values: Floats) -> Floats:
        """Return A' times values of shape (rows, outputs): (columns, outputs)."""

    @abstractmethod
    def gram(self, row_weights: Floats) -> Floats:
        """Return the dense A' diag(row_weights) A: (columns, columns)."""

    @abstractmethod
    def sample(self, max_rows: int) -> tuple["Design", NDArray[np.int64]]:
        """Return at most `max_rows` evenly spaced rows as a design, and their ids."""


class BinDesign(Design):
    """One-hot bins of several columns, stored as codes."""

    def __init__(self, codes: Sequence[NDArray[np.integer]], widths: Sequence[int]) -> None:
        """Create a design from the codes of each column.

        Args:
            codes: For each column, the bin of each row, from 0 to its width - 1.
            widths: The number of bins of each column.
        """
        self.codes = list(codes)
        self.widths = list(widths)
        self.starts = np.cumsum([0, *self.widths])
        self.n_columns = int(self.starts[-1])

    def __len__(self) -> int:
        return len(self.codes[0])

    def dot(self, weights: Floats) -> Floats:
        """Add up the weights of each row's bins."""
        total = np.zeros((len(self), weights.shape[1]))
        for codes, start, width in zip(self.codes, self.starts, self.widths, strict=False):
            total += weights[start : start + width].take(codes, axis=0)
        return total

    def transpose_dot(self, values: Floats) -> Floats:
        """Add up the values of each bin's rows."""
        total = np.empty((self.n_columns, values.shape[1]))
        for codes, start, width in zip(self.codes, self.starts, self.widths, strict=False):
            for output, column in enumerate(values.T):
                total[start : start + width, output] = np.bincount(codes, column, width)
        return total

    def gram(self, row_weights: Floats) -> Floats:
        """Add up the weights of each pair of bins."""
        total = np.zeros((self.n_columns, self.n_columns))
        for index, (codes, start, width) in enumerate(zip(self.codes, self.starts, self.widths, strict=False)):
            own_bins = slice(start, start + width)
            total[own_bins, own_bins] = np.diag(np.bincount(codes, row_weights, width))
            wide_codes = codes.astype(np.int64)
            for other_codes, other_start, other_width in zip(
                self.codes[:index], self.starts, self.widths, strict=False
            ):
                crosstab = np.bincount(
                    wide_codes * other_width + other_codes, row_weights, width * other_width
                ).reshape(width, other_width)
                total[own_bins, other_start : other_start + other_width] = crosstab
                total[other_start : other_start + other_width, own_bins] = crosstab.T
        return total

    def to_sparse(self, functions: Sequence[Floats | None] = ()) -> csr_array:
        """Return a sparse matrix of functions of the bins of each column.

        Args:
            functions: For each column, the values (width, functions) of functions at its bins, or None for one-hot
                bins. If empty, all columns are one-hot.

        Returns:
            A matrix of (rows, functions of all columns), in the order of the columns.
        """
        row_starts = np.arange(0, len(self) * len(self.codes) + 1, len(self.codes))
        indices = np.empty((len(self), len(self.codes)), np.int32)
        for index, (codes, start) in enumerate(zip(self.codes, self.starts, strict=False)):
            np.add(codes, start, out=indices[:, index], casting="unsafe")
        one_hot = csr_array(
            (np.ones(indices.size, np.float32), indices.ravel(), row_starts), (len(self), self.n_columns)
        )
        pairs = list(zip(functions, self.widths, strict=True)) if functions else []
        if all(values is None for values, _ in pairs):
            return one_hot
        blocks = [eye_array(width, format="csr") if values is None else csr_array(values) for values, width in pairs]
        return csr_array(one_hot @ csr_array(block_diag(blocks, format="csr", dtype=np.float32)))

    def select(self, row_selection: NDArray[Any]) -> "BinDesign":
        """Return the rows of a mask or with these ids."""
        return BinDesign([codes[row_selection] for codes in self.codes], self.widths)

    def sample(self, max_rows: int) -> tuple["BinDesign", NDArray[np.int64]]:
        """Return at most `max_rows` evenly spaced rows as a design, and their ids."""
        row_ids = _spaced_rows(len(self), max_rows)
        return self if row_ids.size == len(self) else self.select(row_ids), row_ids


class DenseDesign(Design):
    """A dense matrix with few columns."""

    def __init__(self, matrix: NDArray[np.floating]) -> None:
        """Create a design from a matrix of (rows, columns)."""
        self.matrix = matrix
        self.n_columns = matrix.shape[1]

    def __len__(self) -> int:
        return len(self.matrix)

    def dot(self, weights: Floats) -> Floats:
        """Multiply."""
        return (self.matrix @ weights.astype(self.matrix.dtype)).astype(np.float64)

    def transpose_dot(self, values: Floats) -> Floats:
        """Multiply by the transpose."""
        return (self.matrix.T @ values.astype(self.matrix.dtype)).astype(np.float64)

    def gram(self, row_weights: Floats) -> Floats:
        """Multiply the weighted matrix by its transpose."""
        weighted = self.matrix * row_weights.astype(self.matrix.dtype)[:, None]
        return (weighted.T @ self.matrix).astype(np.float64)

    def sample(self, max_rows: int) -> tuple["DenseDesign", NDArray[np.int64]]:
        """Return at most `max_rows` evenly spaced rows as a design, and their ids."""
        row_ids = _spaced_rows(len(self), max_rows)
        return DenseDesign(self.matrix[row_ids]), row_ids


def _spaced_rows(n_rows: int, max_rows: int) -> NDArray[np.int64]:
    return np.arange(n_rows) if n_rows <= max_rows else np.linspace(0, n_rows - 1, max_rows).astype(np.int64)
