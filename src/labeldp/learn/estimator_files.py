"""Fitted scikit-learn estimators as skops files, and the checks of an estimator before it may predict.

skops creates objects of trusted types only, but does not check their attributes. Some of scikit-learn's compiled code
uses indices from fitted attributes without a check, so a crafted file could crash the process or read its memory.
Estimators whose prediction is Python and NumPy are accepted, and trees whose indices stay inside the tree.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError

_TRUSTED_TYPES = [
    "numpy.dtype",
    "sklearn._loss.link.IdentityLink",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogLink",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn._loss.loss.HalfPoissonLoss",
    "sklearn._loss.loss.HalfSquaredError",
    "sklearn._loss._loss.CyHalfBinomialLoss",
    "sklearn._loss._loss.CyHalfMultinomialLoss",
    "sklearn._loss._loss.CyHalfPoissonLoss",
    "sklearn._loss._loss.CyHalfSquaredError",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
]
# Modules that predict by Python and NumPy, or by trees, which are checked.
_ACCEPTED_MODULES = (
    "sklearn._loss.",
    "sklearn.discriminant_analysis.",
    "sklearn.dummy.",
    "sklearn.ensemble.",
    "sklearn.linear_model.",
    "sklearn.multiclass.",
    "sklearn.naive_bayes.",
    "sklearn.neural_network.",
    "sklearn.pipeline.",
    "sklearn.preprocessing._data.",
    "sklearn.preprocessing._label.",
    "sklearn.tree.",
)
_UNCHECKED_MODULE = "sklearn.ensemble._gb."  # passes the trees of other estimators to compiled code
_VALUE_TYPES = (type(None), bool, int, float, complex, str, bytes, slice, np.generic, np.dtype)
_RNG_TYPES = (np.random.RandomState, np.random.Generator)  # used in training only
_BOOSTING_BASE = "BaseHistGradientBoosting"


def serialize_estimator(fitted: Any) -> bytes:
    """Serialize a fitted estimator by skops.

    Raises:
        InputError: The estimator contains a part that `read_estimator` rejects.
    """
    import skops.io

    serialized: bytes = skops.io.dumps(fitted)
    untrusted = set(skops.io.get_untrusted_types(data=serialized)) - set(_TRUSTED_TYPES)
    problem = min(untrusted) if untrusted else _find_problem(fitted)
    if problem:
        raise InputError(
            f"This {type(fitted).__name__} cannot be saved, because it contains {problem}: "
            "choose one of scikit-learn's usual classifiers or regressors."
        )
    return serialized


def read_estimator(path: Path) -> Any:
    """Read an estimator of scikit-learn's own types, whose indices stay inside its arrays.

    Raises:
        InputError: The file contains another type, or a tree with an index outside the tree.
    """
    import skops.io

    fitted = skops.io.load(path, trusted=_TRUSTED_TYPES)
    if problem := _find_problem(fitted):
        raise InputError(f"{path} is damaged or was not written by labeldp, because it contains {problem}.")
    return fitted


def _find_problem(fitted: Any) -> str | None:
    """Return a description of the first unsafe part of an estimator, or None."""
    for part in _walk_parts(fitted):
        part_type = type(part)
        if not _is_accepted(part_type):
            return f"{part_type.__module__}.{part_type.__qualname__}"
        if any(base.__name__ == _BOOSTING_BASE for base in part_type.__mro__) and not _boosting_is_sound(part):
            return "a boosted tree with an index outside the tree, or with categories"
        if "tree_" in _attributes(part) and not _tree_is_sound(part):
            return "a tree with an index outside the tree"
    return None


def _walk_parts(fitted: Any) -> Iterator[Any]:
    """Yield an estimator and all objects that it contains, except plain values and the inside of compiled types."""
    stack, visited = [fitted], dict[int, Any]()  # references to visited objects, so that no id is reused
    while stack:
        part = stack.pop()
        if isinstance(part, (*_VALUE_TYPES, *_RNG_TYPES)) or id(part) in visited:
            continue
        visited[id(part)] = part
        if isinstance(part, dict):
            stack += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            stack += part
        elif type(part) is np.ndarray:
            stack += part.ravel().tolist() if part.dtype == object else []
        else:
            stack += _attributes(part).values()
            yield part


def _is_accepted(part_type: type) -> bool:
    module = f"{part_type.__module__}."
    return module.startswith(_ACCEPTED_MODULES) and not module.startswith(_UNCHECKED_MODULE)


def _attributes(part: Any) -> dict[str, Any]:
    """Return the attributes of an object; those of a compiled type are not visible."""
    return getattr(part, "__dict__", {})


def _boosting_is_sound(model: Any) -> bool:
    """Return whether all trees of a histogram-based boosting have numeric splits and indices inside the tree."""
    attributes = _attributes(model)
    categorical = _attributes(attributes.get("_bin_mapper")).get("is_categorical_", True)
    if attributes.get("_preprocessor") is not None or np.any(categorical):
        return False
    trees = [tree for round_trees in attributes.get("_predictors", []) for tree in round_trees]
    return all(_nodes_are_sound(_attributes(tree).get("nodes"), attributes.get("n_features_in_")) for tree in trees)


def _nodes_are_sound(nodes: Any, n_features: Any) -> bool:
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    if type(nodes) is not np.ndarray or nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1:
        return False
    split = nodes["is_leaf"] == 0
    numeric = not nodes["is_categorical"][split].any()
    return numeric and _splits_are_sound(split, nodes["left"], nodes["right"], nodes["feature_idx"], n_features)


def _tree_is_sound(estimator: Any) -> bool:
    from sklearn.tree._tree import TREE_LEAF, Tree

    tree, n_features = estimator.tree_, _attributes(estimator).get("n_features_in_")
    # The arrays of a tree are views of its memory: they may be read only if its node count is within its capacity.
    if type(tree) is not Tree or not 1 <= tree.node_count <= tree.capacity or tree.n_features != n_features:
        return False
    split = tree.children_left != TREE_LEAF
    return _splits_are_sound(split, tree.children_left, tree.children_right, tree.feature, n_features)


def _splits_are_sound(
    is_split: NDArray[np.bool_], left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], n_features: Any
) -> bool:
    """Return whether every child follows its parent, so that every path ends, and every split feature exists."""
    if not is_split.size or not isinstance(n_features, int | np.integer):
        return False
    parents = np.flatnonzero(is_split)
    for child in (left[is_split].astype(np.int64), right[is_split].astype(np.int64)):
        if not ((child > parents) & (child < is_split.size)).all():
            return False
    split_features = feature[is_split]
    return bool(((split_features >= 0) & (split_features < n_features)).all())
