"""Public matrices with the products that a fit to sums needs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array, eye_array

Floats = NDArray[np.float64]


class Design(ABC):
    """A public matrix A of (rows, columns)."""

    columns: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def dot(self, weights: Floats) -> Floats:
        """Return A times weights of shape (columns, outputs): (rows, outputs)."""

    @abstractmethod
    def sums(self, values: Floats) -> Floats:
        """Return A' times values of shape (rows, outputs): (columns, outputs)."""

    @abstractmethod
    def gram(self, weight: Floats) -> Floats:
        """Return A' diag(weight) A, dense, for one weight a row: (columns, columns)."""

    @abstractmethod
    def sample(self, most: int) -> tuple["Design", NDArray[np.int64]]:
        """Return at most so many evenly spaced rows as a design, and their numbers."""


class BinDesign(Design):
    """One-hot bins of several columns, held as codes."""

    def __init__(self, codes: Sequence[NDArray[np.integer]], widths: Sequence[int]) -> None:
        """Hold the codes of each column, from 0 to its width - 1, all of the same length."""
        self.codes = list(codes)
        self.widths = list(widths)
        self.starts = np.cumsum([0, *self.widths])
        self.columns = int(self.starts[-1])

    def __len__(self) -> int:
        return len(self.codes[0])

    def dot(self, weights: Floats) -> Floats:
        """Add up the weights of each row's bins."""
        total = np.zeros((len(self), weights.shape[1]))
        for codes, start, width in zip(self.codes, self.starts, self.widths, strict=False):
            total += weights[start : start + width].take(codes, axis=0)
        return total

    def sums(self, values: Floats) -> Floats:
        """Add up the values of each bin's rows."""
        total = np.empty((self.columns, values.shape[1]))
        for codes, start, width in zip(self.codes, self.starts, self.widths, strict=False):
            for place, column in enumerate(values.T):
                total[start : start + width, place] = np.bincount(codes, column, width)
        return total

    def gram(self, weight: Floats) -> Floats:
        """Add up the weights of each pair of bins."""
        total = np.zeros((self.columns, self.columns))
        for place, (codes, start, width) in enumerate(zip(self.codes, self.starts, self.widths, strict=False)):
            rows = slice(start, start + width)
            total[rows, rows] = np.diag(np.bincount(codes, weight, width))
            wide = codes.astype(np.int64)
            for other, begin, size in zip(self.codes[:place], self.starts, self.widths, strict=False):
                table = np.bincount(wide * size + other, weight, width * size).reshape(width, size)
                total[rows, begin : begin + size] = table
                total[begin : begin + size, rows] = table.T
        return total

    def matrix(self, functions: Sequence[Floats | None] = ()) -> csr_array:
        """Return a sparse matrix with some functions of the bins of each column.

        Args:
            functions: For each column (width, functions), the values of functions at its bins, or None for one-hot
                bins. Without it, all columns are one-hot.

        Returns:
            A matrix of (rows, functions of all columns), in the order of the columns.
        """
        bounds = np.arange(0, len(self) * len(self.codes) + 1, len(self.codes))
        places = np.empty((len(self), len(self.codes)), np.int32)
        for place, (codes, start) in enumerate(zip(self.codes, self.starts, strict=False)):
            np.add(codes, start, out=places[:, place], casting="unsafe")
        counted = csr_array((np.ones(places.size, np.float32), places.ravel(), bounds), (len(self), self.columns))
        pairs = list(zip(functions, self.widths, strict=True)) if functions else []
        if all(own is None for own, _ in pairs):
            return counted
        blocks = [eye_array(width, format="csr") if own is None else csr_array(own) for own, width in pairs]
        return csr_array(counted @ csr_array(block_diag(blocks, format="csr", dtype=np.float32)))

    def select(self, rows: NDArray[Any]) -> "BinDesign":
        """Return the rows of a mask or with these numbers."""
        return BinDesign([codes[rows] for codes in self.codes], self.widths)

    def sample(self, most: int) -> tuple["BinDesign", NDArray[np.int64]]:
        """Return evenly spaced rows."""
        rows = _spaced(len(self), most)
        return self if rows.size == len(self) else self.select(rows), rows


class DenseDesign(Design):
    """A dense matrix of few columns."""

    def __init__(self, matrix: NDArray[np.floating]) -> None:
        """Hold the matrix, (rows, columns)."""
        self.matrix = matrix
        self.columns = matrix.shape[1]

    def __len__(self) -> int:
        return len(self.matrix)

    def dot(self, weights: Floats) -> Floats:
        """Multiply."""
        return (self.matrix @ weights.astype(self.matrix.dtype)).astype(np.float64)

    def sums(self, values: Floats) -> Floats:
        """Multiply by the transpose."""
        return (self.matrix.T @ values.astype(self.matrix.dtype)).astype(np.float64)

    def gram(self, weight: Floats) -> Floats:
        """Multiply the weighted matrix by its transpose."""
        weighted = self.matrix * weight.astype(self.matrix.dtype)[:, None]
        return (weighted.T @ self.matrix).astype(np.float64)

    def sample(self, most: int) -> tuple["DenseDesign", NDArray[np.int64]]:
        """Return evenly spaced rows."""
        rows = _spaced(len(self), most)
        return DenseDesign(self.matrix[rows]), rows


def _spaced(rows: int, most: int) -> NDArray[np.int64]:
    return np.arange(rows) if rows <= most else np.linspace(0, rows - 1, most).astype(np.int64)
