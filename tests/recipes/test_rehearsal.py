import random
import warnings

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import labeldp as ldp
from labeldp.data import Table
from labeldp.learn import Supervised, Training
from labeldp.learn.short_training import is_shortened
from labeldp.recipes import rehearsal
from labeldp.recipes.registry import RECIPES, get_recipe
from labeldp.recipes.rehearsal import RowSplit, sample_row_ids
from labeldp.recipes.training import train

get_recipe("randres")
SOME = 300


class Fails(LogisticRegression):
    """A classifier that cannot be fitted."""

    def fit(self, X, y, sample_weight=None):
        raise RuntimeError("17 rows hold secrets")


class NeedsRows(KNeighborsClassifier):
    """A classifier that cannot be fitted on few rows."""

    def fit(self, X, y, sample_weight=None):
        if len(np.unique(X, axis=0)) < 250:
            raise RuntimeError("too few rows")
        return super().fit(X, y)


@pytest.fixture
def attempts(monkeypatch):
    """The numbers of rows on which something is rehearsed."""
    found, attempt = [], rehearsal._try_training
    monkeypatch.setattr(rehearsal, "_try_training", lambda rows, *more: found.append(len(rows)) or attempt(rows, *more))
    return found


def test_what_cannot_be_trained_is_refused_before_anything_is_charged(digits):
    vault = digits.vault(1.0, count=SOME)
    message = "'randres' cannot be trained on these features: .* ended in RuntimeError. Nothing was spent"
    with pytest.raises(ldp.InputError, match=message) as caught:
        train(vault, digits.task(1.0, count=SOME, model=Fails()), "randres")
    assert "secrets" not in str(caught.value)
    assert not vault.ledger.entries()


def test_a_network_of_the_users_that_cannot_be_built_is_refused_before_anything_is_charged(digits):
    def build(shape, classes):
        return torch.nn.Linear(shape[0] + 1, classes)  # for rows of another width

    vault = digits.vault(1.0, count=SOME)
    with pytest.raises(ldp.InputError, match="ended in RuntimeError"):
        train(vault, digits.task(1.0, count=SOME, model=build), "alibi")
    assert not vault.ledger.entries()


def test_what_will_be_done_with_the_model_is_rehearsed_too(digits):
    def use(trained, vault):
        raise OSError("no room")

    vault = digits.vault(1.0, count=SOME)
    with pytest.raises(ldp.InputError, match="ended in OSError"):
        train(vault, digits.task(1.0, count=SOME), "moments", rehearsal_hook=use)
    assert not vault.ledger.entries()


def test_what_fails_on_few_rows_alone_is_trained(digits, attempts):
    trained = train(digits.vault(3.0, count=400), digits.task(3.0, count=400, model=NeedsRows()), "randres")
    assert trained.score is not None
    assert len(attempts) == 2
    assert attempts[0] < 250
    assert attempts[1] == 400


def test_an_error_of_this_library_after_a_release_is_reported_before_the_charge(digits, monkeypatch):
    def fit(self, *given):
        raise ldp.InputError("This learner takes other rows.")

    monkeypatch.setattr(Supervised, "fit", fit)
    vault = digits.vault(1.0, count=SOME)
    with pytest.raises(ldp.InputError, match="takes other rows"):
        train(vault, digits.task(1.0, count=SOME), "randres-mixup")
    assert not vault.ledger.entries()


def test_votes_that_fail_in_a_rehearsal_do_not_refuse_a_run(digits, monkeypatch):
    draw = rehearsal._SyntheticVotes.draw

    def nobody(self, codes, common, bits):
        return draw(self, codes, common, bits).keep(np.zeros(len(codes), bool))

    monkeypatch.setattr(rehearsal._SyntheticVotes, "draw", nobody)
    trained = train(digits.vault(400.0, 1e-5), digits.task(400.0, 1e-5), "pate-fm", {"teachers": 10}, score=False)
    assert trained.guarantee.epsilon <= 400.0


def test_a_recipe_of_somebody_elses_is_not_rehearsed(digits, attempts, monkeypatch):
    def steps(task):
        noisy = yield ldp.recipes.Request(ldp.RandomizedResponse(task.epsilon))
        return task.learner(Supervised).fit(task.features, noisy)

    monkeypatch.setitem(RECIPES, "mine", ldp.recipes.Recipe("mine", "of this test", steps))
    train(digits.vault(1.0, count=SOME), digits.task(1.0, count=SOME), "mine")
    assert not attempts


@pytest.mark.parametrize("name", ["auto", "lp-mst", "moments", "cluster-prior", "pate-fm"])
def test_a_rehearsal_leaves_no_trace(digits, attempts, name, tmp_path):
    """Nothing but the training itself may change random states, warn or write checkpoints."""
    training = Training(epochs=1, device="cpu", checkpoint=tmp_path)
    task = digits.task(2.0, 1e-6, count=SOME, training=training)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    vault = digits.vault(0.5, 1e-6, count=SOME)
    with warnings.catch_warnings(action="error"), pytest.raises(ldp.BudgetExceeded):  # before the first release
        train(vault, task, name, {"teachers": 10} if name == "pate-fm" else {})
    assert attempts
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert states == after
    assert not is_shortened()
    assert not list(tmp_path.iterdir())
    assert not vault.ledger.entries()


def test_labels_of_a_rehearsal_are_the_same_whatever_the_labels_are(digits):
    """What a rehearsal sees is public: labels drawn by a seed, missing where labels are known to be missing."""
    space = ldp.LabelSpace([0, 1, 2], missing="public")
    seen = []
    for labels in ([0, 1, None, 2] * 20, [2, 2, None, 2] * 20):
        vault = rehearsal._SyntheticVault(ldp.Vault(labels, space, ldp.Budget(1.0)), np.arange(80), 1.0, 0.0)
        seen.append(vault._Vault__codes)
    assert np.array_equal(*seen)
    assert np.array_equal(seen[0] < 0, np.arange(80) % 4 == 2)


def test_the_rows_of_a_rehearsal_have_extreme_values_and_some_of_every_part():
    generator = np.random.default_rng(0)
    numbers, towns = generator.normal(size=5000), np.array(["here"] * 5000, object)
    numbers[[7, 8]], towns[9] = [50.0, -50.0], "there"
    column = [None if row == 10 else value for row, value in enumerate(numbers.tolist())]
    table = Table.fit(pl.DataFrame({"x": column, "town": towns.tolist()}))
    part = np.arange(5000) % 10
    rows = sample_row_ids(table, RowSplit(part < 8, part == 8, None), part < 9)
    assert {7, 8, 9, 10} <= set(rows)
    assert rows.size < 250
    assert all((part[rows] == each).any() for each in range(10))
