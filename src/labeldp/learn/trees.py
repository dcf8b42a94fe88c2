"""Boosted trees as plain arrays: read from LightGBM's text, checked, saved, and evaluated by NumPy alone."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.data.tables import Table

_BLOCK = 1 << 14  # rows that are evaluated at once, so that their columns stay in the cache
_ZERO = np.float32(1e-35)  # up to this size LightGBM takes a value for 0
_CATEGORICAL, _DEFAULT_LEFT, _MISSING, _NAN = 1, 2, 12, 8  # bits of LightGBM's decision_type


def tree_matrix(features: Features) -> NDArray[np.float32]:
    """Return the rows as trees read them: of a table, its numbers with NaN for missing values, then category codes."""
    if isinstance(features, Table):
        return np.concatenate([features.numeric_values, features.category_codes.astype(np.float32)], axis=1)
    return np.concatenate(list(features.matrices(_BLOCK)))


@dataclass(frozen=True, eq=False)
class Trees:
    """Binary trees with numeric splits. A row goes left where its value is at most the threshold.

    A child of 0 or more is a node of the same tree, and always a later one; ~child is a leaf of the tree.
    """

    columns: int  # of the rows that trees read
    outputs: int  # scores of a row: tree number t adds to score t modulo outputs
    nodes: NDArray[np.int64]  # where the nodes of each tree begin, and where the last ones end
    leaves: NDArray[np.int64]  # the same of its leaves
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    missing_left: NDArray[np.bool_]  # where NaN goes
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float64]  # of leaves

    def __len__(self) -> int:
        return len(self.leaves) - 1

    @classmethod
    def none(cls, columns: int, outputs: int) -> "Trees":
        """Return no trees."""
        return cls.from_lightgbm("", columns, outputs)

    @classmethod
    def from_lightgbm(cls, text: str, columns: int, outputs: int) -> "Trees":
        """Read the trees of `Booster.model_to_string()`.

        Args:
            text: The model as text, trained on float32 rows without categorical features.
            columns: The columns of the rows.
            outputs: The scores of a row.

        Returns:
            The trees, whose leaf values hold the learning rate.

        Raises:
            InputError: The text holds a tree with categorical splits.
        """
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _KEYS}
        nodes, leaves = [0], [0]
        for facts in _sections(text):
            for name, (key, kind) in _KEYS.items():
                parts[name].append(np.array(facts.get(key, "").split(), kind))
            nodes.append(nodes[-1] + len(parts["feature"][-1]))
            leaves.append(leaves[-1] + len(parts["value"][-1]))
        whole = {
            name: np.concatenate([np.zeros(0, kind), *parts[name]]).astype(kind) for name, (_, kind) in _KEYS.items()
        }
        decision, threshold = whole.pop("decision"), whole.pop("threshold")
        if (decision & _CATEGORICAL).any():
            raise InputError("Trees with categorical splits cannot be read: train with numeric splits.")
        # Without missing values in training, LightGBM takes NaN for 0.
        missing_left = np.where(decision & _MISSING == _NAN, decision & _DEFAULT_LEFT != 0, threshold >= 0)
        marks = np.array(nodes, np.int64), np.array(leaves, np.int64)
        return cls(columns, outputs, *marks, threshold=_rounded_down(threshold), missing_left=missing_left, **whole)

    def scores(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the sums of the leaf values of each row: (rows, outputs).

        Raises:
            InputError: The rows have another number of columns than those of the training.
        """
        if rows.ndim != 2 or rows.shape[1] != self.columns:
            raise InputError(f"These trees read rows of {self.columns} columns, not of shape {rows.shape}.")
        found = np.zeros((len(rows), self.outputs))
        for start in range(0, len(rows), _BLOCK):
            columns = np.array(rows[start : start + _BLOCK].T, np.float32, order="C")
            columns[np.abs(columns) <= _ZERO] = 0.0
            scores = found[start : start + _BLOCK]
            for tree in range(len(self)):
                self._add(tree, columns, scores[:, tree % self.outputs])
        return found

    def scaled(self, factor: float) -> "Trees":
        """Return the trees with all leaf values multiplied by a factor."""
        return replace(self, value=self.value * factor)

    def with_trees(self, others: "Trees") -> "Trees":
        """Return these trees followed by others that read the same columns and add to the same scores.

        Raises:
            InputError: The others read other columns, or add to another number of scores.
        """
        if (self.columns, self.outputs) != (others.columns, others.outputs):
            raise InputError("Trees can be joined only if they read the same columns and add to the same scores.")
        marks = {
            name: np.append(getattr(self, name), getattr(self, name)[-1] + getattr(others, name)[1:])
            for name in ("nodes", "leaves")
        }
        names = ("feature", "threshold", "missing_left", "left", "right", "value")
        parts = {name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in names}
        return Trees(self.columns, self.outputs, **marks, **parts)

    def arrays(self) -> dict[str, Any]:
        """Return what `from_arrays` reads back."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "Trees":
        """Read what `arrays` returned.

        Raises:
            InputError: An array is missing, or does not describe trees: a path would leave its tree or not end.
        """
        try:
            parts = [np.asarray(arrays[each.name], _TYPES.get(each.name, np.int64)) for each in fields(cls)]
            trees = cls(int(parts[0]), int(parts[1]), *parts[2:])
            sound = trees._is_sound()
        except (KeyError, TypeError, ValueError, OverflowError):
            sound = False
        if not sound:
            raise InputError("These arrays do not describe trees.")
        return trees

    def _add(self, tree: int, columns: NDArray[np.float32], scores: NDArray[np.float64]) -> None:
        """Add the leaf values of one tree. Rows are split node by node: children come after their parents."""
        first, last, leaf = self.nodes[tree], self.nodes[tree + 1], self.leaves[tree]
        if first == last:
            scores += self.value[leaf]
            return
        rows_at = {0: np.arange(len(scores))}
        for node in range(last - first):
            rows, place = rows_at.pop(node), first + node
            values, threshold = columns[self.feature[place]][rows], self.threshold[place]
            goes_left = ~(values > threshold) if self.missing_left[place] else values <= threshold
            for child, chosen in ((self.left[place], goes_left), (self.right[place], ~goes_left)):
                if child >= 0:
                    rows_at[int(child)] = rows[chosen]
                else:
                    scores[rows[chosen]] += self.value[leaf + ~child]

    def _is_sound(self) -> bool:
        """Whether every node and leaf but the roots has exactly one parent, which is an earlier node of its tree."""
        per_node = (self.feature, self.threshold, self.missing_left, self.left, self.right)
        if self.columns < 0 or self.outputs < 1 or self.nodes.ndim != 1 or self.nodes.shape != self.leaves.shape:
            return False
        counts, leaf_counts = np.diff(self.nodes), np.diff(self.leaves)
        begins = self.nodes.size > 0 and self.nodes[0] == self.leaves[0] == 0
        if not begins or (counts < 0).any() or (leaf_counts != counts + 1).any():
            return False
        if any(each.shape != (self.nodes[-1],) for each in per_node) or self.value.shape != (self.leaves[-1],):
            return False
        if not np.isfinite(self.value).all() or not np.isfinite(self.threshold).all():
            return False
        own = np.arange(self.nodes[-1]) - np.repeat(self.nodes[:-1], counts)
        tree = np.repeat(np.arange(len(self)), counts)
        children, parents, trees = np.append(self.left, self.right).astype(np.int64), np.tile(own, 2), np.tile(tree, 2)
        inner = children >= 0
        within = np.where(inner, children < counts[trees], ~children < leaf_counts[trees])
        if not within.all() or not (children[inner] > parents[inner]).all():
            return False
        reached = np.bincount(self.nodes[trees[inner]] + children[inner], minlength=self.nodes[-1])
        reached[self.nodes[:-1][counts > 0]] += 1  # roots
        ended = np.bincount(self.leaves[trees[~inner]] + ~children[~inner], minlength=self.leaves[-1])
        ended[self.leaves[:-1][counts == 0]] += 1
        named = ((self.feature >= 0) & (self.feature < self.columns)).all()
        return bool(named and (reached == 1).all() and (ended == 1).all())


_KEYS: dict[str, tuple[str, Any]] = {  # the arrays of a tree in LightGBM's text
    "feature": ("split_feature", np.int32),
    "threshold": ("threshold", np.float64),
    "decision": ("decision_type", np.int32),
    "left": ("left_child", np.int32),
    "right": ("right_child", np.int32),
    "value": ("leaf_value", np.float64),
}
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("feature", "left", "right"), np.int32),
    **{"threshold": np.float32, "missing_left": np.bool_, "value": np.float64},
}


def _sections(text: str) -> Iterator[dict[str, str]]:
    """Return the facts of each tree."""
    for section in text.split("\nTree=")[1:]:
        lines = section.split("\n\n", 1)[0].split("\n")[1:]
        yield dict(line.split("=", 1) for line in lines if "=" in line)


def _rounded_down(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 up to each threshold: float32 values compare with both alike."""
    most = np.finfo(np.float32).max
    near = np.clip(threshold, -most, most).astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)
