"""Generalized additive models, whose scores are sums of effects of one or two public columns."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.data.tables import Table
from labeldp.learn.additive.bins import BinnedColumn
from labeldp.learn.additive.design import Floats
from labeldp.learn.additive.fit import class_probabilities
from labeldp.learn.density import Density, label_grid
from labeldp.learn.predictor import decode_probabilities, not_a_model_error, read_metadata, write_metadata


@dataclass(frozen=True, eq=False)
class Term:
    """The effect of one column, or of a cross of two.

    Attributes:
        columns: The binned columns, one or two.
        weights: The score of each bin and output, (bins, outputs). The index of a cell of a cross is the bin of the
            first column times the width of the second column, plus the bin of the second column.
    """

    columns: tuple[BinnedColumn, ...]
    weights: Floats

    @property
    def name(self) -> str:
        """The names of the columns."""
        return " x ".join(column.name for column in self.columns)

    def cells(self, table: Table) -> NDArray[np.int64]:
        """Return the bin or the cell of each row."""
        cells = np.zeros(len(table), np.int64)
        for column in self.columns:
            cells = cells * column.width + column.encode(_raw_values(table, column))
        return cells


@dataclass(frozen=True, eq=False)
class AdditiveModel(HasProvenance):
    """A logistic model of the sum of its terms.

    Attributes:
        space: The classes.
        provenance: The uses of labels that the model depends on.
        intercept: The intercept of each output, (outputs,).
        terms: The effects.
    """

    kind: ClassVar[str] = "additive"

    space: LabelSpace
    provenance: Provenance
    intercept: Floats
    terms: tuple[Term, ...]

    def scores(self, features: Features) -> Floats:
        """Return the log-odds of the second of two classes, (rows, 1), or a score for each class."""
        table = as_table(features)
        total = np.tile(self.intercept, (len(table), 1))
        for term in self.terms:
            total += term.weights.take(term.cells(table), axis=0)
        return total

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        return class_probabilities(self.scores(features))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the most probable label of each row."""
        return decode_probabilities(self.space, self.predict_proba(features))

    def with_terms(self, terms: Sequence[Term], provenance: Provenance) -> Self:
        """Return this model with further terms.

        Args:
            terms: The further terms.
            provenance: The provenance of the new model.

        Returns:
            A new model.
        """
        return replace(self, terms=(*self.terms, *terms), provenance=provenance)

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder atomically."""
        arrays: dict[str, Any] = {"intercept": self.intercept} | self._extra_arrays()
        columns_of_terms = []
        for term_index, term in enumerate(self.terms):
            arrays[f"{term_index}.weights"] = term.weights
            columns_of_terms.append([{"name": column.name, "width": column.width} for column in term.columns])
            for column_index, column in enumerate(term.columns):
                name, values = ("edges", column.edges) if column.edges is not None else ("map", column.bin_of_code)
                arrays[f"{term_index}.{column_index}.{name}"] = values
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(partial, self, {"kind": self.kind})
            (partial / "terms.json").write_text(json.dumps(columns_of_terms) + "\n")
            np.savez(partial / "arrays.npz", **arrays)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote.

        Raises:
            InputError: The folder contains no such model, or its arrays are inconsistent.
        """
        metadata = read_metadata(folder)
        try:
            with np.load(Path(folder) / "arrays.npz", allow_pickle=False) as file:
                arrays = dict(file.items())
            n_outputs = cls._n_outputs(metadata["space"])
            terms = [
                _read_term(term_index, column_descriptions, arrays, n_outputs)
                for term_index, column_descriptions in enumerate(json.loads((Path(folder) / "terms.json").read_text()))
            ]
            intercept = _check_finite(arrays["intercept"], (n_outputs,))
            return cls(metadata["space"], metadata["provenance"], intercept, tuple(terms), **cls._extra_fields(arrays))
        except Exception:
            raise not_a_model_error(folder) from None

    @classmethod
    def _n_outputs(cls, space: LabelSpace) -> int:
        if space.step is not None:
            raise ValueError("These labels are numbers.")
        return 1 if len(space) == 2 else len(space)

    def _extra_arrays(self) -> dict[str, Any]:
        return {}

    @classmethod
    def _extra_fields(cls, arrays: dict[str, Any]) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, eq=False)
class AdditiveNumberModel(AdditiveModel):
    """An additive regression: a sum of effects in the units of the labels, with normal residuals.

    Attributes:
        deviation: The standard deviation of labels around the prediction.
    """

    kind: ClassVar[str] = "additive-numbers"

    deviation: float

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each declared number for each row."""
        return Density(label_grid(self.space), "squared", self.deviation).probabilities(self.predict(features))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the expected number of each row, within the declared range."""
        return np.clip(self.scores(features)[:, 0], self.space.classes[0], self.space.classes[-1])

    @classmethod
    def _n_outputs(cls, space: LabelSpace) -> int:
        if space.step is None:
            raise ValueError("These labels are classes.")
        return 1

    def _extra_arrays(self) -> dict[str, Any]:
        return {"deviation": np.array([self.deviation])}

    @classmethod
    def _extra_fields(cls, arrays: dict[str, Any]) -> dict[str, Any]:
        deviation = float(_check_finite(arrays["deviation"], (1,))[0])
        if deviation <= 0:
            raise ValueError("A deviation is above 0.")
        return {"deviation": deviation}


def as_table(features: Features) -> Table:
    """Return features that are a table.

    Raises:
        InputError: They are no table.
    """
    if not isinstance(features, Table):
        raise InputError("An additive model needs the columns of a table: take moments for embeddings and images.")
    return features


def _read_term(
    term_index: int, column_descriptions: Sequence[dict[str, Any]], arrays: dict[str, Any], n_outputs: int
) -> Term:
    """Return a term from arrays of a file.

    Raises:
        ValueError: The arrays are inconsistent.
    """
    binned_columns = []
    if not 1 <= len(column_descriptions) <= 2:
        raise ValueError("A term has one column or two.")
    for column_index, description in enumerate(column_descriptions):
        edges, bin_of_code = (arrays.get(f"{term_index}.{column_index}.{name}") for name in ("edges", "map"))
        if (edges is None) == (bin_of_code is None):
            raise ValueError("A column has edges or a map.")
        width = int(description["width"])
        if bin_of_code is not None and not (
            bin_of_code.ndim == 1
            and np.issubdtype(bin_of_code.dtype, np.integer)
            and ((bin_of_code >= 0) & (bin_of_code < width)).all()
        ):
            raise ValueError("A category has no bin.")
        if edges is not None and not (_check_finite(edges, (width - 2,))[1:] > edges[:-1]).all():
            raise ValueError("The edges of a column are not ascending.")
        binned_columns.append(BinnedColumn(str(description["name"]), edges, bin_of_code, width))
    shape = math.prod(column.width for column in binned_columns), n_outputs
    return Term(tuple(binned_columns), _check_finite(arrays[f"{term_index}.weights"], shape))


def _check_finite(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if values.shape != shape or not np.issubdtype(values.dtype, np.floating) or not np.isfinite(values).all():
        raise ValueError("An array has the wrong shape, or a value that is not finite.")
    return values


def _raw_values(table: Table, column: BinnedColumn) -> NDArray[Any]:
    """Return the numbers or the category codes of a column in another table.

    Raises:
        InputError: The table has no such column.
    """
    encoder = table.encoder
    if column.bin_of_code is None:
        numeric_names = [each.name for each in encoder.numeric]
        if column.name in numeric_names:
            return table.numeric_values[:, numeric_names.index(column.name)]
    else:
        widths = [(each.name, each.width) for each in encoder.categorical]
        if (column.name, len(column.bin_of_code)) in widths:
            return table.category_codes[:, widths.index((column.name, len(column.bin_of_code)))]
    raise InputError(
        f"The column {column.name!r} differs from that of the training: encode rows by the table of the training."
    )
