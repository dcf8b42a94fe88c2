"""What can be trained, by name: networks, logistic regression, and boosted trees."""

from typing import Any

from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

from labeldp.core.errors import InputError
from labeldp.learn.backbone_names import backbones_for
from labeldp.learn.boosting import Boosting

_SUITED_TO = {1: " for tables", 2: " for pairs", 3: ""}


def find_model(name: Any, seed: int = 0, n_axes: int = 3, is_numeric: bool = False) -> Any:
    """Return a model by its short name, a backbone's name as it is, and anything that is no name unchanged.

    Rows of 1 axis are columns, of 2 pairs of ids, which are for networks alone, of 3 images. For `numbers` it is a
    regressor instead; its penalty goes with the data, so that `ridge` stays a name.
    """
    if not isinstance(name, str):
        if n_axes == 2 and hasattr(name, "fit"):
            raise InputError(f"{type(name).__name__} would take ids for quantities: choose mf or ncf.")
        return name
    models: dict[str, Any] = {"logistic": LogisticRegression(C=0.1, max_iter=300), "trees": Boosting(seed=seed)}
    if is_numeric:
        models = {"ridge": "ridge", "trees": HistGradientBoostingRegressor(min_samples_leaf=50, random_state=seed)}
    known = ["auto", *(models if n_axes != 2 else ()), *backbones_for(n_axes)]
    if name not in known:
        raise InputError(
            f"There is no model {name!r}{_SUITED_TO[n_axes]}: choose {', '.join(known[:-1])} or {known[-1]}."
        )
    return models.get(name, name)
