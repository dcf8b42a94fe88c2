import sys

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import labeldp as ldp
from labeldp.data import Table
from labeldp.learn import BoostedModel, Model, Training
from labeldp.recipes.cluster_votes import keep_agreeing, plurality_vote
from labeldp.recipes.task import Task
from labeldp.recipes.training import train


@pytest.mark.parametrize(
    ("name", "epsilon", "margin"),
    [
        ("randres-mixup", 2.0, 0.1),  # measured: 0.19
        ("randres-denoise", 1.0, 0.3),  # 0.45
        ("randres-augdescent", 2.0, 0.2),  # 0.30
        ("randres-ssl", 2.0, 0.08),  # 0.16
    ],
)
def test_sorting_labels_beats_learning_them_as_they_are_at_a_middle_epsilon(digits, name, epsilon, margin):
    assert digits.mean_accuracy(name, epsilon) > digits.mean_accuracy("randres", epsilon, targets="labels") + margin


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "epsilon", "margin"),
    [
        ("randres-mixup", 1.0, 0.1),
        ("randres-denoise", 1.0, 0.4),
        ("randres-denoise", 2.0, 0.25),
        ("randres-augdescent", 1.0, 0.17),
        ("randres-augdescent", 2.0, 0.27),
        ("randres-ssl", 1.0, 0.05),
        ("randres-ssl", 2.0, 0.12),
    ],
)
def test_it_does_so_over_many_draws(digits, name, epsilon, margin):
    plain = digits.mean_accuracy("randres", epsilon, seeds=16, targets="labels")
    assert digits.mean_accuracy(name, epsilon, seeds=16) > plain + margin


def test_a_network_that_knows_the_noise_beats_one_that_learns_noisy_labels(digits):
    likelihood, labels = (digits.mean_accuracy("randres", 2.0, targets=each) for each in ("auto", "labels"))
    assert likelihood > labels + 0.08  # measured: 0.21


def small_table(positives, rows=6000):
    generator = np.random.default_rng(0)
    numbers = generator.normal(size=(rows, 3))
    probabilities = expit(3 * numbers[:, 0] + np.quantile(-3 * numbers[:, 0], positives))
    labels = (generator.random(rows) < probabilities).astype(int)
    return Table.fit(pl.DataFrame(numbers, schema=["a", "b", "c"])), labels


def by_randres(table, labels, options=None, **changes):
    space, epsilon = ldp.LabelSpace([0, 1]), 2.0
    training = Training(epochs=3, batch_size=64, device="cpu")
    task = Task(table, space, np.ones(len(labels), bool), epsilon, training=training, **changes)
    return train(ldp.Vault(labels, space, ldp.Budget(epsilon)), task, "randres", options, score=False).model


@pytest.mark.parametrize("model", ["auto", "trees", "logistic", "mlp"])
def test_probabilities_for_a_table_are_those_of_the_true_label(model):
    """Of the noisy label, the mean probability would be 0.20."""
    table, labels = small_table(0.1)
    fitted = by_randres(table, labels, model=model)
    assert isinstance(fitted, BoostedModel) == (model in ("auto", "trees"))
    probabilities = fitted.predict_proba(table)[:, 1]
    assert abs(probabilities.mean() - labels.mean()) < 0.04
    assert roc_auc_score(labels, probabilities) > 0.85


def test_a_table_whose_labels_are_learnt_as_they_are_trains_a_network():
    table, labels = small_table(0.1)
    for options in ({"targets": "labels"}, {"mixup": 1.0}):
        assert isinstance(by_randres(table, labels, options), Model)
    with pytest.raises(ldp.InputError, match="Only networks learn noisy labels as they are"):
        by_randres(table, labels, {"targets": "labels"}, model=LogisticRegression())


def test_without_lightgbm_nothing_is_spent(monkeypatch):
    table, labels = small_table(0.1)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    vault, space = ldp.Vault(labels, ldp.LabelSpace([0, 1]), ldp.Budget(1.0)), ldp.LabelSpace([0, 1])
    with pytest.raises(ldp.InputError, match="LightGBM, which cannot be loaded"):
        train(vault, Task(table, space, np.ones(len(labels), bool), 1.0), "randres", score=False)
    assert not vault.ledger.entries()


def test_what_denoising_keeps_is_part_of_what_was_released(digits):
    noisy = digits.vault(1.0).release(ldp.RandomizedResponse(1.0))
    agreeing = keep_agreeing(noisy, plurality_vote(noisy, digits.task(1.0).find_clusters(20)))
    is_agreeing = agreeing.labels() >= 0
    assert 0 < is_agreeing.sum() < 1400
    assert np.array_equal(agreeing.labels()[is_agreeing], noisy.labels()[is_agreeing])
    assert (digits.labels[is_agreeing] == agreeing.labels()[is_agreeing]).mean() > (
        digits.labels == noisy.labels()
    ).mean() + 0.3
    assert agreeing.guarantee == noisy.guarantee


def test_denoising_costs_nothing(digits):
    vault = digits.vault(1.0)
    trained = train(vault, digits.task(1.0), "randres-denoise", score=False)
    assert [r.mechanism for r in trained.releases] == ["RandomizedResponse"]
    assert len(vault.ledger.entries()) == 1
    assert trained.model.guarantee.epsilon == 1.0
