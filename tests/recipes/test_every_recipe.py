"""What holds for every pipeline: its cost is the one that was asked for, and it gives a model that predicts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.data import Images
from labeldp.learn import Model
from labeldp.learn.backbones import build
from labeldp.learn.predictor import load_predictor
from labeldp.recipes.registry import RECIPES, get_recipe
from labeldp.recipes.training import train

get_recipe("randres")  # enters all of them
SOME = 400
TEACHERS = {name for name in RECIPES if name.startswith("pate")} | {"stable-vote", "immutable"}  # see test_pate
NUMBERS = {name for name, recipe in RECIPES.items() if recipe.labels == "numbers"}  # see test_numbers_recipes
WITHOUT_DELTA = sorted(set(RECIPES) - TEACHERS - NUMBERS - {"refine", "additive"})  # see their own tests
WITH_DELTA = {"moments", "smooth-moments", "log-linear", "auto"}  # they take Gaussian noise where they may


def test_the_papers_pipelines_are_all_there():
    assert set(RECIPES) >= {
        *("randres", "randres-mixup", "randres-ssl", "randres-augdescent", "randres-denoise", "lp-mst"),
        *("cluster-prior", "noise-cluster", "moments", "alibi", "auto", "additive", "log-linear"),
        *("pate", "pate-coteaching", "pate-plus", "pate-plus-plus", "pate-fm", "pate-fm-ssl", "pate-fm-denoise"),
        *("pate-fm-augdescent", "stable-vote", "immutable"),
    }
    assert all(recipe.summary and recipe.name == name for name, recipe in RECIPES.items())


def test_an_unknown_recipe_names_those_there_are(digits):
    vault = digits.vault(1.0, count=SOME)
    with pytest.raises(ldp.InputError, match=r"no recipe 'randress': choose one of additive, alibi, auto, .*randres"):
        train(vault, digits.task(1.0, count=SOME), "randress")
    assert not vault.ledger.entries()


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 0.1 + 0.2, 2.7])
@pytest.mark.parametrize("name", WITHOUT_DELTA)
def test_the_cost_is_epsilon_and_no_more(digits, name, epsilon):
    vault = digits.vault(epsilon, count=SOME)
    trained = train(vault, digits.task(epsilon, count=SOME), name)
    assert trained.guarantee.epsilon <= epsilon
    assert trained.guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (trained.guarantee.delta, trained.guarantee.unit) == (0.0, "label")
    if len(trained.releases) == 1 or name == "lp-mst":
        assert trained.guarantee.epsilon == epsilon
    assert vault.guarantee().epsilon <= epsilon  # the rows that score have the same epsilon for themselves
    assert vault.guarantee().epsilon == pytest.approx(epsilon, rel=1e-9)
    assert vault.guarantee().delta == 0.0
    assert trained.model.guarantee.epsilon <= trained.guarantee.epsilon
    assert trained.score is not None


@pytest.mark.parametrize("name", WITHOUT_DELTA)
def test_delta_is_spent_only_where_it_buys_something(digits, name):
    vault = digits.vault(1.5, 1e-6, count=SOME)
    trained = train(vault, digits.task(1.5, 1e-6, count=SOME), name)
    used = 1e-6 if name in WITH_DELTA else 0.0
    assert (trained.guarantee.epsilon, trained.guarantee.delta) == (pytest.approx(1.5, rel=1e-9), used)
    assert trained.guarantee.epsilon <= 1.5
    assert (vault.guarantee().epsilon, vault.guarantee().delta) == (pytest.approx(1.5, rel=1e-9), used)


@pytest.mark.parametrize("name", WITHOUT_DELTA)
def test_rows_outside_the_task_are_never_released(digits, name):
    rows = np.arange(SOME) % 3 > 0
    vault = digits.vault(2.7, count=SOME)
    train(vault, digits.task(2.7, count=SOME, row_mask=rows), name)
    assert vault.remaining(~rows)[0] == 2.7
    assert vault.remaining(rows)[0] < 1e-9


@pytest.mark.parametrize("name", WITHOUT_DELTA)
def test_the_model_is_saved_and_predicts_the_same(digits, name, tmp_path):
    model = train(digits.vault(2.7, count=SOME), digits.task(2.7, count=SOME), name).model
    probabilities = model.predict_proba(digits.new)
    assert probabilities.shape == (397, 10)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert np.allclose(again.predict_proba(digits.new), probabilities, atol=1e-6)
    assert (again.space, again.guarantee, again.lineage) == (model.space, model.guarantee, model.lineage)


@pytest.mark.parametrize("name", WITHOUT_DELTA)
def test_an_unknown_option_is_refused_before_anything_is_spent(digits, name):
    vault = digits.vault(1.0, count=SOME)
    with pytest.raises(ldp.InputError, match=f"'{name}' has no option 'colour': it takes "):
        train(vault, digits.task(1.0, count=SOME), name, {"colour": 1})
    assert not vault.ledger.entries()


@pytest.mark.parametrize("name", ["randres-ssl", "randres-augdescent", "randres-denoise"])
def test_what_trains_networks_alone_refuses_a_classifier_before_anything_is_spent(digits, name):
    vault = digits.vault(1.0, count=SOME)
    with pytest.raises(ldp.InputError, match="choose a backbone, not LogisticRegression"):
        train(vault, digits.task(1.0, count=SOME, model=LogisticRegression()), name)
    assert not vault.ledger.entries()


@pytest.mark.parametrize("name", ["randres", "randres-mixup", "lp-mst", "alibi", "noise-cluster", "cluster-prior"])
def test_the_others_train_any_classifier_with_sample_weights(digits, name):
    task = digits.task(3.0, model=LogisticRegression(C=0.1, max_iter=300))
    trained = train(digits.vault(3.0), task, name, score=False)
    assert digits.accuracy(trained.model) > 0.85


@pytest.mark.parametrize("name", WITHOUT_DELTA)
def test_hardly_any_noise_gives_hardly_any_mistakes(digits, name):
    trained = train(digits.vault(1000.0), digits.task(1000.0, epochs=12), name, score=False)
    assert digits.accuracy(trained.model) > 0.9


@pytest.mark.parametrize("name", ["moments", "noise-cluster", "lp-mst", "auto"])
def test_images_are_seen_through_an_encoder(digits, name, tmp_path):
    images = Images((digits.features.batch(torch.arange(SOME)).reshape(-1, 1, 8, 8) * 254).byte().numpy(), flip=False)
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    vault = digits.vault(9.0, 1e-6, count=SOME)
    trained = train(vault, replace(digits.task(9.0, 1e-6, count=SOME), features=images, encoder=encoder), name)
    assert (trained.guarantee.epsilon, vault.guarantee().epsilon) == (9.0, 9.0)
    trained.model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert np.allclose(again.predict_proba(images), trained.model.predict_proba(images), atol=1e-5)
