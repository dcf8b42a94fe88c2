"""What can be trained, by name: networks, and two classifiers of scikit-learn."""

from typing import Any

from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from labeldp.errors import InputError
from labeldp.learn.backbones import BACKBONES

_FLAT = ("mlp", "linear")


def find_model(name: Any, seed: int = 0, images: bool = True) -> Any:
    """Return a classifier by its short name, a backbone's name as it is, and anything that is no name unchanged."""
    if not isinstance(name, str):
        return name
    trees = HistGradientBoostingClassifier(random_state=seed)
    classifiers = {"logistic": LogisticRegression(C=0.1, max_iter=300), "trees": trees}
    known = ["auto", *classifiers, *(name for name in BACKBONES if images or name in _FLAT)]
    if name not in known:
        what = "" if images else " for tables"
        raise InputError(f"There is no model {name!r}{what}: choose {', '.join(known[:-1])} or {known[-1]}.")
    return classifiers.get(name, name)
