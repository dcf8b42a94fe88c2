"""Unusual but legal tables are trained on, or refused in a sentence before anything is charged.

The suite takes a tenth of what `pytest -m long tests/recipes/test_unusual_tables.py` takes: 500 tables, each by every
recipe that needs neither teachers nor an encoder.
"""

import warnings

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from unusual import unusual

import labeldp as ldp
from labeldp import LabelPrivateClassifier, LabelPrivateRegressor
from labeldp.learn import Training
from labeldp.privacy.vault import Ledger
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.recipes.registry import RECIPES, get_recipe
from labeldp.runs.config import TrainConfig
from labeldp.runs.predict import predict
from labeldp.runs.training import train_to_folder as train_run

get_recipe("randres")
FAST = sorted(name for name, recipe in RECIPES.items() if not recipe.uses_teachers and recipe.needs != "encoder")
MODELS = {
    "classes": ["auto", "auto", "logistic", HistGradientBoostingClassifier(max_iter=3), "linear"],
    "numbers": ["auto", "auto", "ridge", HistGradientBoostingRegressor(max_iter=3), "linear"],
}


def recipes_for(table):
    kind = "numbers" if table.numbers else "classes"
    return [name for name in FAST if RECIPES[name].labels in (kind, "any")]


def estimator(table, name, seed, ledger):
    """Return what is fitted, with a model that goes with the seed."""
    names = MODELS["numbers" if table.numbers else "classes"]
    model = names[seed % len(names)] if RECIPES[name].takes_model and name != "auto" else "auto"
    how = {"delta": table.delta, "model": model, "ledger": ledger, "training": Training(epochs=2, device="cpu")}
    how |= {"labels_per_user": None if table.users is None else 1 + seed % 3}
    kind = LabelPrivateRegressor if table.numbers else LabelPrivateClassifier
    return kind(table.epsilon, table.space, name, **how)


def trained_or_refused(table, name, seed, ledger):
    """Fit and predict; say whether it was refused, and check that a refusal cost nothing."""
    private = estimator(table, name, seed, ledger)
    labels = np.array(table.labels, object)
    try:
        with warnings.catch_warnings(action="ignore"):
            private.fit(table.frame, labels, users=table.users)
    except ldp.LabelDPError:
        assert not ledger.exists() or not Ledger(ledger).entries()
        return False
    assert private.guarantee_.epsilon <= table.epsilon
    predictions = private.predict(table.frame) if table.numbers else private.predict_proba(table.frame)
    assert np.isfinite(predictions).all()
    return True


@pytest.mark.parametrize("seed", range(50))
def test_an_unusual_table_is_trained_on_or_refused_for_nothing(seed, tmp_path):
    table = unusual(seed)
    names = recipes_for(table)
    for name in {"auto", names[seed % len(names)]}:
        trained_or_refused(table, name, seed, tmp_path / f"{name}.ledger")


@pytest.mark.parametrize("seed", range(0, 50, 10))
def test_so_is_one_in_a_file(seed, tmp_path):
    table = unusual(seed)
    data, space = tmp_path / "data.parquet", table.space
    kind = pl.Float64 if table.numbers else pl.String
    table.frame.with_columns(secret=pl.Series(table.labels, dtype=kind)).write_parquet(data)
    declared = {"label_range": f"{space.classes[0]},{space.classes[-1]},{space.step}"} if table.numbers else {}
    classes = None if table.numbers else ",".join(map(str, space.classes))
    secret = SecretTable.open(data, "secret", classes, space.missing, **declared)
    vault = secret.vault(table.epsilon, table.delta)
    try:
        with warnings.catch_warnings(action="ignore"):
            train_run(secret, vault, TrainConfig(table.epsilon, table.delta, epochs=2, device="cpu"), tmp_path / "run")
    except ldp.LabelDPError:
        assert not vault.ledger.entries()
    else:
        assert predict(tmp_path / "run", data).height == table.frame.height


@pytest.mark.long
@pytest.mark.parametrize("seed", range(500))
def test_every_fast_recipe_takes_or_refuses_it(seed, tmp_path):
    table = unusual(seed)
    for name in recipes_for(table):
        trained_or_refused(table, name, seed, tmp_path / f"{name}.ledger")


def test_most_tables_can_be_trained_on(tmp_path):
    trained = [trained_or_refused(unusual(seed), "auto", seed, tmp_path / str(seed)) for seed in range(100, 112)]
    assert sum(trained) >= 9
