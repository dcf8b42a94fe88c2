import numpy as np
import pytest

import labeldp as ldp
from labeldp.core.errors import MissingExtra
from labeldp.data import Embeddings
from labeldp.recipes.registry import RECIPES, Recipe, get_recipe
from labeldp.recipes.task import Task


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lp-mst", {"stages": True}, "'stages' must be a whole number, not True"),
        ("lp-mst", {"first_fraction": "half"}, "'first_fraction' must be a number, not 'half'"),
        ("lp-mst", {"augment": "some"}, "'augment' must be one of weak, strong, not 'some'"),
        ("lp-mst", {"mixup": -1}, "'mixup' must not be below zero"),
        ("lp-mst", {"stage": 2}, "no option 'stage': it takes stages, first"),
        ("moments", {"stages": 2}, "no option 'stages': it takes none"),
        ("pate-fm", {"engine": 3}, "'engine' must be a text, not 3"),
        ("bins", {}, "learns numbers, and these labels are classes"),
        ("refine", {}, "begins from an encoder of images"),
    ],
)
def test_what_a_recipe_cannot_begin_with_is_one_sentence(name, options, message):
    with pytest.raises(ldp.InputError, match=message):
        get_recipe(name).check(ldp.LabelSpace([0, 1]), options, delta=1e-6)


def test_what_it_needs_and_takes_is_let_through():
    with pytest.raises(ldp.InputError, match="needs a delta above 0"):
        get_recipe("pate-fm").check(None, {})
    get_recipe("pate-fm").check(None, {"teachers": np.int64(50), "threshold": np.float32(0.5)}, delta=1e-6)
    get_recipe("lp-mst").check(None, {"first_fraction": None, "mixup": 1})


@pytest.mark.parametrize("name", ["moments", "sums"])
def test_a_model_that_would_not_be_trained_is_refused(name):
    get_recipe(name).check(None, {})
    with pytest.raises(ldp.InputError, match="a linear model of its own: leave the model out"):
        get_recipe(name).check(None, {}, model="trees")


def test_a_recipe_of_ones_own_need_not_say_of_what_type_its_options_are():
    Recipe("own", "", lambda task, anything=None: None).check(None, {"anything": object()})


@pytest.mark.parametrize(
    ("kind", "value"),
    [("float", 2.0), (bool, True), (bool | None, None), (list[int], [1]), (float | str, "auto"), (float, -1.0)],
)
def test_what_a_recipe_of_ones_own_takes_is_its_own_business(kind, value):
    def steps(task, option=None):
        yield

    steps.__annotations__["option"] = kind
    steps.__module__ = "elsewhere"
    Recipe("own", "", steps).check(None, {"option": value})


def test_nothing_is_spent_on_an_estimator_with_an_option_of_another_type(tmp_path):
    model = ldp.LabelPrivateClassifier(1.0, [0, 1], "lp-mst", options={"stages": "2"}, ledger=tmp_path / "ledger")
    with pytest.raises(ldp.InputError, match="'stages' must be a whole number"):
        model.fit(np.eye(40), np.arange(40) % 2)
    assert not (tmp_path / "ledger").exists()


get_recipe("randres")  # enters all of them


def needs_torch(action):
    try:
        action()
    except MissingExtra:
        return True
    except ldp.InputError:  # a model that does not suit the recipe
        pass
    return False


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (name, model)
        for name in sorted(set(RECIPES) - {"refine", "additive"})  # they need pictures and a table
        for model in ("auto", "trees", "mlp")
        if model == "auto" or RECIPES[name].takes_model
    ],
)
def test_without_torch_a_recipe_is_refused_only_where_its_first_step_would_fail(name, model, monkeypatch):
    monkeypatch.setattr("labeldp.core.lazy.find_spec", lambda name: None)
    recipe, rows = get_recipe(name), np.random.default_rng(0).normal(size=(60, 3))
    space = ldp.LabelSpace.range(0, 10, 1) if recipe.labels == "numbers" else ldp.LabelSpace([0, 1])
    task = Task(Embeddings(rows), space, np.ones(60, bool), 1.0, 1e-6, model=model)
    refused = needs_torch(lambda: recipe.check(space, {}, delta=1e-6, model=model))
    fails = needs_torch(lambda: next(recipe.steps(task)))
    if (name, model) == ("randres", "auto"):  # trees for a table, and a network for these rows
        assert (refused, fails) == (False, True)
    else:
        assert refused == fails


def test_torch_that_is_missing_is_named_with_the_recipe(monkeypatch):
    get_recipe("randres-mixup").check(None, {})
    monkeypatch.setattr("labeldp.core.lazy.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="Training a network by the recipe 'randres-mixup' needs torch, "):
        get_recipe("randres-mixup").check(None, {})
    with pytest.raises(MissingExtra, match="'auto'"):
        get_recipe("auto").check(None, {}, model=lambda shape, classes: None)
