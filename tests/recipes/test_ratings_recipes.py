from dataclasses import replace

import numpy as np
import pytest
import torch
from rated import SPACE, Ratings
from scripted import Seeded
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import Training, bayes
from labeldp.learn.supervised import draw_mixup
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task, default_training
from labeldp.recipes.training import train


@pytest.fixture(scope="module")
def rated():
    return Ratings()


def vault_of(rated, epsilon, seed=0, space=SPACE):
    vault = ldp.Vault(rated.labels, space, ldp.Budget(epsilon))
    vault._bits = Seeded(seed)
    return vault


def task_of(rated, epsilon, seed=0, epochs=6, space=SPACE, **more):
    training = Training(epochs, 128, "adam", 0.03, prior_deviation=0.2, device="cpu", seed=seed)
    return Task(rated.features, space, all_rows(4000), epsilon, training=training, seed=seed, **more)


@pytest.mark.parametrize(("epsilon", "margin"), [(1.0, 0.04), (2.0, 0.03), (3.0, 0.006)])
def test_two_stages_expect_better_than_one(rated, epsilon, margin):
    """Measured over these seeds: 0.062, 0.050 and 0.011. What the mean alone gets is 1.135."""

    def error(stages, seed):
        vault, task = vault_of(rated, epsilon, seed), task_of(rated, epsilon, seed, model="mf")
        return rated.error(train(vault, task, "lp-mst", {"stages": stages}, score=False).model)

    gaps = [error(1, seed) - error(2, seed) for seed in range(3)]
    assert np.mean(gaps) > margin
    assert min(gaps) > 0


@pytest.mark.parametrize("model", ["auto", "mf", "ncf"])
def test_ordered_numbers_are_answered_by_bins_for_one_epsilon(rated, model):
    vault = vault_of(rated, 0.3)
    trained = train(vault, task_of(rated, 0.3, epochs=1, model=model), "lp-mst", {"stages": 3}, score=False)
    assert [r.mechanism for r in trained.releases] == ["RandomizedResponse", "RROnBins", "RROnBins"]
    assert trained.guarantee.epsilon == vault.guarantee().epsilon == 0.3
    active = np.sum([release.row_mask for release in trained.releases], axis=0)
    assert (active == 1).all()
    origins = [entry.details["origin"] for entry in vault.ledger.entries()]
    assert origins[0] == "declared public"
    assert len(origins[2]) == 2


def test_the_papers_form_is_there_for_whoever_asks(rated):
    trained = train(vault_of(rated, 1.0), task_of(rated, 1.0, epochs=1), "lp-mst", {"loss": "right"}, score=False)
    assert [r.mechanism for r in trained.releases] == ["RandomizedResponse", "RRWithPrior"]


def test_classes_without_order_are_answered_by_classes(rated):
    space = ldp.LabelSpace([1, 2, 3, 4, 5])
    vault, task = vault_of(rated, 1.0, space=space), task_of(rated, 1.0, epochs=1, space=space)
    assert train(vault, task, "lp-mst", score=False).releases[1].mechanism == "RRWithPrior"
    other = vault_of(rated, 1.0, space=space)
    with pytest.raises(ldp.InputError, match="A squared loss needs ordered classes"):
        train(other, task, "lp-mst", {"loss": "squared"})
    assert not other.ledger.entries()


@pytest.mark.parametrize("name", ["auto", "randres", "randres-mixup", "randres-ssl", "alibi"])
def test_recipes_that_take_pairs(rated, name):
    trained = train(vault_of(rated, 1.0), task_of(rated, 1.0, epochs=1), name)
    assert trained.guarantee.epsilon == 1.0
    assert trained.score.accuracy is not None
    assert trained.model.predict_proba(rated.new).shape == (1000, 5)


@pytest.mark.parametrize(
    ("name", "options", "model", "message"),
    [
        ("lp-mst", {"mixup": 1.0}, "mf", "A mixture of two ids is nobody"),
        ("randres", {"mixup": 1.0}, "mf", "A mixture of two ids is nobody"),
        ("randres-mixup", {"mixup": 1.0}, "mf", "A mixture of two ids is nobody"),
        ("randres-augdescent", {}, "mf", "AugDescent augments or mixes rows"),
        ("randres-denoise", {}, "mf", "cannot be added up or clustered"),
        ("noise-cluster", {}, "mf", "cannot be added up or clustered"),
        ("cluster-prior", {}, "mf", "cannot be added up or clustered"),
        ("moments", {}, "auto", "cannot be added up or clustered"),
        ("lp-mst", {}, "mlp", "There is no model 'mlp' for pairs: choose auto, mf or ncf"),
        ("lp-mst", {}, "trees", "There is no model 'trees' for pairs"),
        ("randres", {}, LogisticRegression(), "would take ids for quantities"),
    ],
)
def test_what_ids_do_not_allow_is_refused_before_anything_is_spent(rated, name, options, model, message):
    vault = vault_of(rated, 1.0)
    with pytest.raises(ldp.InputError, match=message):
        train(vault, task_of(rated, 1.0, model=model), name, options)
    assert not vault.ledger.entries()


def test_teachers_refuse_ids_too(rated):
    vault = ldp.Vault(rated.labels, SPACE, ldp.Budget(1.0, 1e-5))
    with pytest.raises(ldp.InputError, match="cannot be added up or clustered"):
        train(vault, task_of(rated, 1.0, delta=1e-5), "pate-fm")
    assert not vault.ledger.entries()


@pytest.mark.parametrize(("options", "mixed"), [({}, False), ({"mixup": 1.0}, True), ({"loss": "right"}, True)])
def test_rows_of_ratings_are_mixed_only_if_asked_for(rated, options, mixed, monkeypatch):
    """Unless what counts is to be right: a mixture leans towards the middle."""
    pairs, calls = task_of(rated, 1.0, epochs=1), []
    rows = Embeddings(pairs.features.batch(torch.arange(4000)).float())
    monkeypatch.setattr(bayes, "draw_mixup", lambda *of: calls.append(of) or draw_mixup(*of))
    train(vault_of(rated, 1.0), replace(pairs, features=rows, model="mlp"), "lp-mst", options, score=False)
    assert bool(calls) == mixed


def test_no_mixing_may_be_asked_for(rated):
    train(vault_of(rated, 1.0), task_of(rated, 1.0, epochs=1), "lp-mst", {"mixup": 0}, score=False)


def test_the_usual_training_has_a_prior(rated):
    usual = default_training(task_of(rated, 1.0))
    assert (usual.optimizer, usual.prior_deviation, usual.batch_size) == ("adam", 0.2, 64)


def test_the_estimator_takes_frames_of_ids(rated):
    import polars as pl
    from rated import ratings

    frame = ratings(n_rows=400)
    clf = ldp.LabelPrivateClassifier(5.0, [1, 2, 3, 4, 5], features="pairs", random_state=0)
    clf.fit(frame.select("user", "item"), frame["rating"])
    assert [r["mechanism"] for r in clf.card_.facts["releases"]][1:2] == ["RROnBins"]
    new = pl.DataFrame({"user": ["nobody"], "item": ["nothing"]})
    assert clf.predict_proba(new).shape == (1, 5)
