"""Boosted trees as plain arrays: read from LightGBM's text, checked, saved, and evaluated by NumPy alone."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.data.tables import Table

_BLOCK_ROWS = 1 << 14  # rows that are evaluated at once, so that their columns stay in the cache
_ZERO = np.float32(1e-35)  # magnitude up to which LightGBM treats a value as 0
_CATEGORICAL, _DEFAULT_LEFT, _MISSING, _NAN = 1, 2, 12, 8  # bits of LightGBM's decision_type


def tree_matrix(features: Features) -> NDArray[np.float32]:
    """Return the matrix of rows; for a table, its numbers with NaN for missing values, then category codes."""
    if isinstance(features, Table):
        return np.concatenate([features.numeric_values, features.category_codes.astype(np.float32)], axis=1)
    return np.concatenate(list(features.matrices(_BLOCK_ROWS)))


@dataclass(frozen=True, eq=False)
class Trees:
    """Binary trees with numeric splits. A row goes left where its value is at most the threshold.

    A child of 0 or more is a later node of the same tree; a negative child is the leaf ~child of the tree.

    Attributes:
        n_columns: The columns of rows.
        n_outputs: The scores of a row: tree number t adds to score t modulo `n_outputs`.
        node_offsets: The first node of each tree, and the number of all nodes.
        leaf_offsets: The first leaf of each tree, and the number of all leaves.
        feature: The column of each node.
        threshold: The threshold of each node.
        missing_left: Whether NaN goes left at each node.
        left: The left child of each node.
        right: The right child of each node.
        value: The value of each leaf.
    """

    n_columns: int
    n_outputs: int
    node_offsets: NDArray[np.int64]
    leaf_offsets: NDArray[np.int64]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    missing_left: NDArray[np.bool_]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.leaf_offsets) - 1

    @classmethod
    def none(cls, n_columns: int, n_outputs: int) -> "Trees":
        """Return no trees."""
        return cls.from_lightgbm("", n_columns, n_outputs)

    @classmethod
    def from_lightgbm(cls, text: str, n_columns: int, n_outputs: int) -> "Trees":
        """Read the trees of `Booster.model_to_string()`.

        Args:
            text: The model as text, trained on float32 rows without categorical features.
            n_columns: The columns of the rows.
            n_outputs: The scores of a row.

        Returns:
            The trees, whose leaf values include the learning rate.

        Raises:
            InputError: The text contains a tree with categorical splits.
        """
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _LIGHTGBM_KEYS}
        node_offsets, leaf_offsets = [0], [0]
        for tree_fields in _parse_trees(text):
            for name, (key, dtype) in _LIGHTGBM_KEYS.items():
                parts[name].append(np.array(tree_fields.get(key, "").split(), dtype))
            node_offsets.append(node_offsets[-1] + len(parts["feature"][-1]))
            leaf_offsets.append(leaf_offsets[-1] + len(parts["value"][-1]))
        arrays = {
            name: np.concatenate([np.zeros(0, dtype), *parts[name]]).astype(dtype)
            for name, (_, dtype) in _LIGHTGBM_KEYS.items()
        }
        decision, threshold = arrays.pop("decision"), arrays.pop("threshold")
        if (decision & _CATEGORICAL).any():
            raise InputError("Trees with categorical splits cannot be read: train with numeric splits.")
        # Without missing values in training, LightGBM treats NaN as 0.
        missing_left = np.where(decision & _MISSING == _NAN, decision & _DEFAULT_LEFT != 0, threshold >= 0)
        offsets = np.array(node_offsets, np.int64), np.array(leaf_offsets, np.int64)
        return cls(
            n_columns, n_outputs, *offsets, threshold=_round_down(threshold), missing_left=missing_left, **arrays
        )

    def scores(self, X: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the sums of the leaf values of each row: (rows, outputs).

        Raises:
            InputError: The rows have another number of columns than those of the training.
        """
        if X.ndim != 2 or X.shape[1] != self.n_columns:
            raise InputError(f"These trees read rows of {self.n_columns} columns, not of shape {X.shape}.")
        scores = np.zeros((len(X), self.n_outputs))
        for start in range(0, len(X), _BLOCK_ROWS):
            columns = np.array(X[start : start + _BLOCK_ROWS].T, np.float32, order="C")
            columns[np.abs(columns) <= _ZERO] = 0.0
            block_scores = scores[start : start + _BLOCK_ROWS]
            for tree in range(len(self)):
                self._add(tree, columns, block_scores[:, tree % self.n_outputs])
        return scores

    def scaled(self, factor: float) -> "Trees":
        """Return the trees with all leaf values multiplied by a factor."""
        return replace(self, value=self.value * factor)

    def with_trees(self, other: "Trees") -> "Trees":
        """Return these trees followed by others that read the same columns and add to the same scores.

        Raises:
            InputError: The others read other columns, or add to another number of scores.
        """
        if (self.n_columns, self.n_outputs) != (other.n_columns, other.n_outputs):
            raise InputError("Trees can be joined only if they read the same columns and add to the same scores.")
        offsets = {
            name: np.append(getattr(self, name), getattr(self, name)[-1] + getattr(other, name)[1:])
            for name in ("node_offsets", "leaf_offsets")
        }
        names = ("feature", "threshold", "missing_left", "left", "right", "value")
        parts = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names}
        return Trees(self.n_columns, self.n_outputs, **offsets, **parts)

    def arrays(self) -> dict[str, Any]:
        """Return the fields as arrays, which `from_arrays` reads."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "Trees":
        """Create trees from the arrays that `arrays` returned.

        Raises:
            InputError: An array is missing or invalid: a path would leave its tree or not end.
        """
        try:
            parts = [np.asarray(arrays[each.name], _ARRAY_TYPES.get(each.name, np.int64)) for each in fields(cls)]
            trees = cls(int(parts[0]), int(parts[1]), *parts[2:])
            is_valid = trees._is_valid()
        except (KeyError, TypeError, ValueError, OverflowError):
            is_valid = False
        if not is_valid:
            raise InputError("These arrays do not describe trees.")
        return trees

    def _add(self, tree: int, columns: NDArray[np.float32], scores: NDArray[np.float64]) -> None:
        """Add the leaf values of one tree to scores. Rows are split node by node, as children follow their parents."""
        first, last, leaf = self.node_offsets[tree], self.node_offsets[tree + 1], self.leaf_offsets[tree]
        if first == last:
            scores += self.value[leaf]
            return
        row_ids_at = {0: np.arange(len(scores))}
        for node in range(last - first):
            row_ids, node_id = row_ids_at.pop(node), first + node
            values, threshold = columns[self.feature[node_id]][row_ids], self.threshold[node_id]
            goes_left = ~(values > threshold) if self.missing_left[node_id] else values <= threshold
            for child, child_mask in ((self.left[node_id], goes_left), (self.right[node_id], ~goes_left)):
                if child >= 0:
                    row_ids_at[int(child)] = row_ids[child_mask]
                else:
                    scores[row_ids[child_mask]] += self.value[leaf + ~child]

    def _is_valid(self) -> bool:
        """Return whether every node and leaf but the roots has exactly one parent, an earlier node of its tree."""
        per_node = (self.feature, self.threshold, self.missing_left, self.left, self.right)
        if (
            self.n_columns < 0
            or self.n_outputs < 1
            or self.node_offsets.ndim != 1
            or self.node_offsets.shape != self.leaf_offsets.shape
        ):
            return False
        node_counts, leaf_counts = np.diff(self.node_offsets), np.diff(self.leaf_offsets)
        starts_at_zero = self.node_offsets.size > 0 and self.node_offsets[0] == self.leaf_offsets[0] == 0
        if not starts_at_zero or (node_counts < 0).any() or (leaf_counts != node_counts + 1).any():
            return False
        if any(each.shape != (self.node_offsets[-1],) for each in per_node) or self.value.shape != (
            self.leaf_offsets[-1],
        ):
            return False
        if not np.isfinite(self.value).all() or not np.isfinite(self.threshold).all():
            return False
        local_ids = np.arange(self.node_offsets[-1]) - np.repeat(self.node_offsets[:-1], node_counts)
        tree = np.repeat(np.arange(len(self)), node_counts)
        children = np.append(self.left, self.right).astype(np.int64)
        parents = np.tile(local_ids, 2)
        trees = np.tile(tree, 2)
        is_node = children >= 0
        in_range = np.where(is_node, children < node_counts[trees], ~children < leaf_counts[trees])
        if not in_range.all() or not (children[is_node] > parents[is_node]).all():
            return False
        node_parents = np.bincount(
            self.node_offsets[trees[is_node]] + children[is_node], minlength=self.node_offsets[-1]
        )
        node_parents[self.node_offsets[:-1][node_counts > 0]] += 1  # roots
        leaf_parents = np.bincount(
            self.leaf_offsets[trees[~is_node]] + ~children[~is_node], minlength=self.leaf_offsets[-1]
        )
        leaf_parents[self.leaf_offsets[:-1][node_counts == 0]] += 1
        features_exist = ((self.feature >= 0) & (self.feature < self.n_columns)).all()
        return bool(features_exist and (node_parents == 1).all() and (leaf_parents == 1).all())


_LIGHTGBM_KEYS: dict[str, tuple[str, Any]] = {  # the arrays of a tree in LightGBM's text
    "feature": ("split_feature", np.int32),
    "threshold": ("threshold", np.float64),
    "decision": ("decision_type", np.int32),
    "left": ("left_child", np.int32),
    "right": ("right_child", np.int32),
    "value": ("leaf_value", np.float64),
}
_ARRAY_TYPES: dict[str, Any] = {
    **dict.fromkeys(("feature", "left", "right"), np.int32),
    **{"threshold": np.float32, "missing_left": np.bool_, "value": np.float64},
}


def _parse_trees(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each tree in LightGBM's text."""
    for section in text.split("\nTree=")[1:]:
        lines = section.split("\n\n", 1)[0].split("\n")[1:]
        yield dict(line.split("=", 1) for line in lines if "=" in line)


def _round_down(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 up to each threshold, with which float32 values compare as with the threshold."""
    max_value = np.finfo(np.float32).max
    rounded = np.clip(threshold, -max_value, max_value).astype(np.float32)
    return np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded).astype(np.float32)
