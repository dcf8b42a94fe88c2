"""Models by name: networks, logistic regression, ridge regression and boosted trees."""

from typing import Any

from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression

from labeldp.core.errors import InputError
from labeldp.learn.backbone_names import backbones_for
from labeldp.learn.boosting import Boosting

# Text of an error message by the number of axes of the features.
_FEATURES_TEXT = {1: " for tables", 2: " for pairs", 3: ""}


def find_model(name: Any, seed: int = 0, n_axes: int = 3, is_numeric: bool = False) -> Any:
    """Resolve the short name of a model.

    Args:
        name: The name of a model or backbone, or a model.
        seed: The seed of boosted trees.
        n_axes: 1 for columns, 2 for pairs of ids, which only networks learn, and 3 for images.
        is_numeric: Whether the labels are numbers, so that the model is a regressor. "ridge" stays a name, because its
            penalty depends on the data.

    Returns:
        The model of a short name. The name of a backbone and a model are returned unchanged.

    Raises:
        InputError: There is no such model for these features, or a classifier would take ids for quantities.
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
            f"There is no model {name!r}{_FEATURES_TEXT[n_axes]}: choose {', '.join(known[:-1])} or {known[-1]}."
        )
    return models.get(name, name)
