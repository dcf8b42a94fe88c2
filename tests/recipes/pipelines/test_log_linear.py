"""Softmax regression from noisy sums and noisy labels: what is asked for, what it costs, and what it learns."""

import numpy as np
import polars as pl
import pytest
import torch
from scripted import Seeded

import labeldp as ldp
from labeldp.data import Embeddings, Images, Table
from labeldp.learn import Model
from labeldp.learn.additive.log_linear import LogLinearModel
from labeldp.learn.backbones import build
from labeldp.learn.predictor import load_predictor
from labeldp.privacy.mechanisms import LinearQuery, RandomizedResponse
from labeldp.privacy.vault import Identity, Ledger
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.pipelines.log_linear import sums_fraction
from labeldp.recipes.task import Task
from labeldp.recipes.training import train

SOME = 600


@pytest.mark.parametrize(
    ("epsilon", "options", "asked"),
    [
        (1.0, {}, [1.0]),
        (2.0, {}, [1.0, 1.0]),
        (20.0, {}, [6.0, 14.0]),
        (2.0, {"epsilon_fraction": 1}, [2.0]),
        (2.0, {"epsilon_fraction": 0.25}, [0.5, 1.5]),
        (0.9996, {"epsilon_fraction": 0.9999}, [0.9996]),  # of which three digits are more than all of it
        (0.5, {"epsilon_fraction": 0.5}, [0.25, 0.25]),
    ],
)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_sums_come_first_and_noisy_labels_where_epsilon_allows(digits, epsilon, options, asked, delta):
    vault = digits.vault(epsilon, delta, count=SOME)
    trained = train(vault, digits.task(epsilon, delta, count=SOME), "log-linear", options)
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", "RandomizedResponse"][: len(asked)]
    assert [r.parameters["epsilon"] for r in trained.releases] == pytest.approx(asked)
    assert trained.guarantee.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert max(trained.guarantee.epsilon, vault.guarantee().epsilon) <= epsilon
    assert (trained.guarantee.delta, trained.guarantee.unit) == (delta, "label")
    assert isinstance(trained.model, LogLinearModel)


def test_of_many_classes_labels_are_drawn_among_those_that_the_sums_leave_open():
    generator = np.random.default_rng(0)
    labels = np.arange(1200) % 30
    rows = generator.normal(size=(30, 40))[labels] + 0.5 * generator.normal(size=(1200, 40))
    vault = ldp.Vault(labels, ldp.LabelSpace(list(range(30))), ldp.Budget(4.0, 1e-6))
    vault._bits = Seeded(0)
    task = Task(Embeddings(rows.astype(np.float32)), vault.space, all_rows(1200), 4.0, 1e-6)
    trained = train(vault, task, "log-linear")
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", "RRWithPrior"]
    assert (trained.model.predict(task.features) == labels).mean() > 0.9


def test_a_model_of_sums_and_labels_of_two_classes_is_read_back(tmp_path):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(400, 3)).astype(np.float32)
    vault = ldp.Vault((rows[:, 0] > 0).astype(int), ldp.LabelSpace([0, 1]), ldp.Budget(6.0, 1e-6))
    vault._bits = Seeded(0)
    task = Task(Embeddings(rows), vault.space, all_rows(400), 6.0, 1e-6)
    model = train(vault, task, "log-linear").model
    model.save(tmp_path / "model")
    again = load_predictor(tmp_path / "model")
    assert np.array_equal(again.predict_proba(task.features), model.predict_proba(task.features))
    assert (model.predict(task.features) == (rows[:, 0] > 0)).mean() > 0.9


@pytest.mark.parametrize("epsilon_fraction", [0, 1.5, -0.1, float("nan")])
def test_a_share_outside_is_refused_before_the_charge(digits, epsilon_fraction):
    vault = digits.vault(1.0, count=SOME)
    with pytest.raises(ldp.InputError, match=r"epsilon_fraction.* must"):
        train(vault, digits.task(1.0, count=SOME), "log-linear", {"epsilon_fraction": epsilon_fraction})
    assert not vault.ledger.entries()


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_users_share_epsilon_and_delta(digits, delta):
    users = np.arange(SOME) // 3
    vault = digits.vault(6.0, delta, count=SOME, users=users)
    trained = train(vault, digits.task(6.0, delta, count=SOME, users=users), "log-linear")
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", "RandomizedResponse"]
    assert trained.guarantee.unit == "user"
    assert trained.guarantee.epsilon <= 6.0
    assert trained.guarantee.epsilon == pytest.approx(6.0, rel=1e-4 if delta else 1e-9)
    assert vault.guarantee().epsilon <= 6.0
    own = digits.task(6.0, delta, count=SOME, users=users)
    assert sums_fraction(own) == 0.5
    assert sums_fraction(digits.task(4.0, delta, count=SOME, users=users)) == 1.0  # 1.33 for a label


def test_rows_without_a_label_take_no_part(digits):
    space = ldp.LabelSpace(list(range(10)), missing="public")
    labels = [None if index % 3 == 0 else int(label) for index, label in enumerate(digits.labels)]
    vault = ldp.Vault(labels, space, ldp.Budget(8.0, 1e-6))
    vault._bits = Seeded(0)
    known = np.arange(1400) % 3 > 0
    trained = train(vault, Task(digits.features, space, known, 8.0, 1e-6), "log-linear")
    assert all(not release.row_mask[~known].any() for release in trained.releases)
    assert digits.accuracy(trained.model) > 0.85


def test_it_learns_digits_better_than_ridge_regression(digits):
    for epsilon, delta in ((1.0, 1e-5), (4.0, 1e-5)):
        ours, theirs = (digits.mean_accuracy(name, epsilon, delta) for name in ("log-linear", "moments"))
        assert ours > theirs - 0.01
    assert ours > 0.9


@pytest.mark.parametrize("index", range(2))
def test_an_interrupted_run_goes_on_and_repeats_its_requests(digits, tmp_path, monkeypatch, index):
    def opened(seed):
        settings = {"ledger": tmp_path / "ledger.db", "identity": Identity("digits", "digit", SOME)}
        return digits.vault(4.0, 1e-6, seed, SOME, **settings)

    def drawn():
        ledger = Ledger(tmp_path / "ledger.db")
        return [ledger.payload(entry.id) for entry in ledger.entries() if entry.status == "committed"]

    def interrupt(*given):
        raise KeyboardInterrupt

    task, settings = digits.task(4.0, 1e-6, count=SOME), {"score": False, "with_rehearsal": False}
    with monkeypatch.context() as patch:
        patch.setattr((LinearQuery, RandomizedResponse)[index], "draw", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(opened(1), task, "log-linear", **settings)
    before = drawn()
    assert len(before) == index
    trained = train(opened(2), task, "log-linear", **settings)
    after = drawn()
    assert len(after) == 2
    assert after[:index] == before
    again = train(opened(3), digits.task(4.0, 1e-6, count=SOME), "log-linear", **settings)
    assert drawn() == after
    assert np.array_equal(again.model.predict_proba(digits.new), trained.model.predict_proba(digits.new))


FEATURES = {
    "one column": Embeddings(np.arange(60.0)[:, None]),
    "constants": Embeddings(np.ones((60, 3))),
    "zeros": Embeddings(np.zeros((60, 3))),
    "two rows": Embeddings(np.eye(2)),
    "a table": Table.fit(pl.DataFrame({"x": [1.0, None, 3.0] * 20, "kind": ["a", "b", None] * 20})),
    "a constant table": Table.fit(pl.DataFrame({"x": [1.0] * 60})),
}


@pytest.mark.parametrize("classes", [2, 3, 90])
@pytest.mark.parametrize("name", list(FEATURES))
def test_unusual_features_are_learnt(name, classes):
    features = FEATURES[name]
    rows, space = len(features), ldp.LabelSpace(list(range(classes)))
    for epsilon in (0.1, 4.0):
        vault = ldp.Vault(np.arange(rows) % classes, space, ldp.Budget(epsilon, 1e-6))
        trained = train(vault, Task(features, space, all_rows(rows), epsilon, 1e-6), "log-linear")
        probabilities = trained.model.predict_proba(features)
        assert np.isfinite(probabilities).all()
        assert np.allclose(probabilities.sum(axis=1), 1)
        assert trained.guarantee.epsilon <= epsilon


def test_a_model_of_pictures_holds_their_encoder(digits):
    images = Images((digits.features.batch(torch.arange(200)).reshape(-1, 1, 8, 8) * 254).byte().numpy(), flip=False)
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    task = digits.task(4.0, 1e-6, count=200)
    task = Task(images, task.space, task.row_mask, 4.0, 1e-6, encoder=encoder)
    model = train(digits.vault(4.0, 1e-6, count=200), task, "log-linear").model
    assert model.predict_proba(images).shape == (200, 10)
