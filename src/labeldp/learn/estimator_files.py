"""Fitted scikit-learn estimators as bytes of skops, and what is checked before one from a file may predict.

skops makes only types that are trusted, but does not look at what they hold. Some of scikit-learn's compiled code takes
indices from fitted attributes without checking them, so that a crafted file could crash the process or read its memory.
Estimators whose prediction is Python and NumPy are accepted, and trees whose indices stay inside the tree.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError

_TRUSTED = [
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
# Where scikit-learn predicts by Python and NumPy, or by trees, which are checked.
_ACCEPTED = (
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
_UNCHECKED = "sklearn.ensemble._gb."  # hands the trees of other estimators to compiled code
_VALUES = (type(None), bool, int, float, complex, str, bytes, slice, np.generic, np.dtype)
_RANDOM = (np.random.RandomState, np.random.Generator)  # used in training only
_BOOSTING = "BaseHistGradientBoosting"


def written_estimator(fitted: Any) -> bytes:
    """Write a fitted estimator by skops, if `read_estimator` would read it back.

    Raises:
        InputError: It holds something that `read_estimator` rejects.
    """
    import skops.io

    written: bytes = skops.io.dumps(fitted)
    strange = set(skops.io.get_untrusted_types(data=written)) - set(_TRUSTED)
    problem = min(strange) if strange else _problem(fitted)
    if problem:
        raise InputError(
            f"This {type(fitted).__name__} could not be read back, because it holds {problem}: "
            "models are kept of scikit-learn's usual classifiers and regressors only."
        )
    return written


def read_estimator(path: Path) -> Any:
    """Read an estimator of scikit-learn's own types only, whose prediction stays inside its arrays.

    Raises:
        InputError: It holds another type, or a tree with an index outside the tree.
    """
    import skops.io

    fitted = skops.io.load(path, trusted=_TRUSTED)
    if problem := _problem(fitted):
        raise InputError(f"{path} is damaged or was not written by labeldp, because it holds {problem}.")
    return fitted


def _problem(fitted: Any) -> str | None:
    """Return what makes an estimator unsafe to use, or None."""
    for part in _parts(fitted):
        kind = type(part)
        if not _accepted(kind):
            return f"{kind.__module__}.{kind.__qualname__}"
        if any(base.__name__ == _BOOSTING for base in kind.__mro__) and not _boosting_is_sound(part):
            return "a boosted tree with an index outside the tree, or with categories"
        if "tree_" in _held(part) and not _tree_is_sound(part):
            return "a tree with an index outside the tree"
    return None


def _parts(fitted: Any) -> Iterator[Any]:
    """Go through an estimator and all that it holds, but for plain values and the inside of compiled types."""
    waiting, seen = [fitted], dict[int, Any]()  # what was seen is kept, so that no other object gets its id
    while waiting:
        part = waiting.pop()
        if isinstance(part, (*_VALUES, *_RANDOM)) or id(part) in seen:
            continue
        seen[id(part)] = part
        if isinstance(part, dict):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        elif type(part) is np.ndarray:
            waiting += part.ravel().tolist() if part.dtype == object else []
        else:
            waiting += _held(part).values()
            yield part


def _accepted(kind: type) -> bool:
    module = f"{kind.__module__}."
    return module.startswith(_ACCEPTED) and not module.startswith(_UNCHECKED)


def _held(part: Any) -> dict[str, Any]:
    """Return the attributes of an object; of a compiled one, none."""
    return getattr(part, "__dict__", {})


def _boosting_is_sound(model: Any) -> bool:
    """Whether every tree of a histogram-based boosting splits by numbers of its features, and stays inside itself."""
    facts = _held(model)
    categorical = _held(facts.get("_bin_mapper")).get("is_categorical_", True)
    if facts.get("_preprocessor") is not None or np.any(categorical):
        return False
    trees = [tree for of_one_round in facts.get("_predictors", []) for tree in of_one_round]
    return all(_nodes_are_sound(_held(tree).get("nodes"), facts.get("n_features_in_")) for tree in trees)


def _nodes_are_sound(nodes: Any, features: Any) -> bool:
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    if type(nodes) is not np.ndarray or nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1:
        return False
    split = nodes["is_leaf"] == 0
    numeric = not nodes["is_categorical"][split].any()
    return numeric and _splits_are_sound(split, nodes["left"], nodes["right"], nodes["feature_idx"], features)


def _tree_is_sound(estimator: Any) -> bool:
    from sklearn.tree._tree import TREE_LEAF, Tree

    tree, features = estimator.tree_, _held(estimator).get("n_features_in_")
    # The arrays of a tree are views of its memory: they may be looked at only if it has as many nodes as it says.
    if type(tree) is not Tree or not 1 <= tree.node_count <= tree.capacity or tree.n_features != features:
        return False
    split = tree.children_left != TREE_LEAF
    return _splits_are_sound(split, tree.children_left, tree.children_right, tree.feature, features)


def _splits_are_sound(
    split: NDArray[np.bool_], left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], features: Any
) -> bool:
    """Whether children come after their parent, so that every path ends, and splits are by features that exist."""
    if not split.size or not isinstance(features, int | np.integer):
        return False
    parents = np.flatnonzero(split)
    for child in (left[split].astype(np.int64), right[split].astype(np.int64)):
        if not ((child > parents) & (child < split.size)).all():
            return False
    chosen = feature[split]
    return bool(((chosen >= 0) & (chosen < features)).all())
