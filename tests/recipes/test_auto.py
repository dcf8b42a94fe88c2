from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from scripted import Seeded
from sklearn.metrics import roc_auc_score

import labeldp as ldp
from labeldp.features import Images, Table
from labeldp.learn import Model, Training
from labeldp.learn.backbones import build
from labeldp.recipes.auto import auto, budget_for_sums, several, smoothed
from labeldp.recipes.run import all_rows, train
from labeldp.recipes.task import Task
from labeldp.represent.clusters import neighbours


@pytest.fixture(scope="module")
def people():
    """A table with numbers, a category and missing values, whose label depends on them in a bent way."""
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 3000))
    town = generator.choice(["north", "south", "west"], 3000)
    labels = ((a * b > 0) | (town == "west")).astype(int)
    seen = np.where(generator.random(3000) < 0.1, None, a.astype(object))
    return Table.fit(pl.DataFrame({"a": seen.astype(float), "b": b, "town": town}).fill_nan(None)), labels


def on_people(people, epsilon, delta=0.0, seed=0):
    table, labels = people
    space = ldp.LabelSpace([0, 1])
    vault = ldp.Vault(labels, space, ldp.Budget(epsilon, delta))
    vault._bits = Seeded(seed)
    training = Training(epochs=3, batch=128, rate=0.1, device="cpu")
    return vault, Task(table, space, all_rows(3000), epsilon, delta, training=training)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 0.99])
def test_below_epsilon_one_a_table_has_one_candidate_which_is_that_of_moments(people, epsilon):
    one, two = (train(*on_people(people, epsilon), name) for name in ("auto", "moments"))
    assert one.candidates == 1
    assert [r.mechanism for r in one.releases] == ["LinearQuery"]
    assert np.array_equal(one.model.coefficients, two.model.coefficients)


def test_of_few_rows_whose_sums_noise_would_drown_clusters_vote(digits):
    trained = train(digits.vault(0.5), digits.task(0.5), "auto")
    assert [r.mechanism for r in trained.releases] == ["GroupHistogram"]


def test_with_delta_sums_of_smoothed_rows_are_heard_where_others_drown(digits):
    one, two = (train(digits.vault(0.1, 1e-5), digits.task(0.1, 1e-5), name) for name in ("auto", "smooth-moments"))
    assert one.candidates == 1
    for ours, theirs in zip(one.releases, two.releases, strict=True):
        assert np.array_equal(ours.moments, theirs.moments)


def test_of_few_rows_near_ones_help_and_a_private_choice_decides(digits):
    trained = train(digits.vault(1.5, 1e-5), digits.task(1.5, 1e-5, epochs=10), "auto")
    assert trained.candidates == 2
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", "BestCandidate"]


def test_smoothing_over_neighbours_corrects_labels(digits):
    task = digits.task(0.5, 1e-5)
    sums = digits.vault(0.5, 1e-5).release(ldp.LinearQuery(task.lifted, 0.5, 1e-5))
    before, after = (
        np.mean(r.labels() == digits.labels) for r in (sums, smoothed(task, sums, neighbours(task.lifted, 10)))
    )
    assert after > before + 0.02


def test_above_there_are_several_and_a_private_choice(people):
    vault, task = on_people(people, 2.0, 1e-6)
    trained = train(vault, task, "auto")
    assert trained.candidates == 4  # linear, logistic, trees, network
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", "RRWithPrior", "BestCandidate"]
    assert (trained.guarantee.epsilon, trained.guarantee.delta) == (pytest.approx(2.0, rel=1e-12), 1e-6)
    assert vault.guarantee().epsilon <= 2.0


def test_what_is_not_linear_is_learnt_by_trees(people):
    """A constant model is right for 0.67 of the rows, and a linear one hardly oftener."""
    vault, task = on_people(people, 3.0, 1e-6)
    trained = train(vault, task, "auto")
    assert type(trained.model.classifier).__name__ == "HistGradientBoostingClassifier"
    table, labels = people
    assert (trained.model.predict(table) == labels).mean() > 0.8
    assert trained.score.accuracy.value > 0.75


def test_many_classes_and_embeddings_have_no_trees(digits):
    trained = train(digits.vault(50.0), digits.task(50.0), "auto")
    assert trained.candidates == 4  # linear, of neighbours, logistic, network


def test_without_torch_no_network_is_a_candidate(digits, monkeypatch):
    few, drowned = digits.task(1.0, 1e-5), digits.task(0.05, 1e-5)
    assert several(few)  # a network of neighbours beside the linear model
    monkeypatch.setattr("labeldp.lazy.find_spec", lambda name: None)
    assert not several(few)
    trained = train(digits.vault(50.0), digits.task(50.0), "auto")
    assert trained.candidates == 2  # linear and logistic
    assert trained.notes == ()
    model = train(digits.vault(0.05, 1e-5), drowned, "auto", score=False).model
    assert type(model.classifier).__name__ == "LogisticRegression"


def test_the_parts_of_the_budget_come_from_public_facts(digits):
    for epsilon in (1.0, 1 / 3, 2.5, 10.0):
        first, second = budget_for_sums(digits.task(epsilon, 1e-6))
        assert first + second == pytest.approx(epsilon, rel=1e-12)
        assert first > 0
        assert second == 0 or second >= np.log(10) / 2 - 0.01


def test_more_rows_need_less_of_the_budget_for_sums(people):
    table, _ = people
    firsts = []
    for rows in (500, 1500, 3000):
        task = Task(table, ldp.LabelSpace([0, 1]), np.arange(3000) < rows, 3.0, 1e-6)
        firsts.append(budget_for_sums(task)[0])
    assert firsts[0] > firsts[1] > firsts[2]


def test_it_beats_randomized_response_at_a_low_epsilon(digits):
    for epsilon, delta, margin in ((0.5, 0.0, 0.25), (1.0, 1e-5, 0.5)):
        plain = digits.mean_accuracy("randres", epsilon, targets="labels")
        assert digits.mean_accuracy("auto", epsilon, delta) > plain + margin


@pytest.mark.parametrize(("rows", "positives", "second"), [(20_000, 0.01, "LinearQuery"), (3_000, 0.3, "RRWithPrior")])
def test_where_a_class_is_rare_the_rest_goes_to_sums_again(rows, positives, second):
    random, space = np.random.default_rng(0), ldp.LabelSpace([0, 1])
    codes = (random.random(rows) < positives).astype(int)
    features = Table.fit(pl.DataFrame(random.normal(size=(rows, 10)) + 0.7 * codes[:, None]))
    vault = ldp.Vault(codes, space, ldp.Budget(1.0, 1e-6))
    vault._bits = Seeded(0)
    training = Training(epochs=1, device="cpu")
    task = Task(features, space, all_rows(rows), 1.0, 1e-6, model="linear", training=training)
    trained = train(vault, task, "auto", score=False)
    assert [release.mechanism for release in trained.releases][:2] == ["LinearQuery", second]
    assert trained.guarantee.epsilon <= 1.0
    assert trained.guarantee.delta <= 1e-6
    assert roc_auc_score(codes, trained.model.predict_proba(features)[:, 1]) > 0.9


@pytest.mark.parametrize(("enough", "refined"), [(20, True), (21, False)])
def test_pictures_with_an_encoder_are_refined_if_there_are_many(digits, monkeypatch, enough, refined):
    monkeypatch.setattr("labeldp.recipes.auto._ROWS_A_CLASS", enough)
    monkeypatch.setattr("labeldp.recipes.auto.refine", lambda task: iter(["refined"]))
    pixels = (digits.features.batch(torch.arange(200)) * 254).byte().reshape(-1, 1, 8, 8)
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    task = replace(digits.task(1.0, 1e-5, count=200), features=Images(pixels, flip=False), encoder=encoder)
    assert (next(auto(task)) == "refined") == refined
    assert several(task) != refined
