"""What the advisor says, and what it takes."""

import inspect
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Seeded

import labeldp as ldp
from labeldp.accounting.calibration import calibrated_loss
from labeldp.accounting.losses import compose
from labeldp.core.errors import InputError
from labeldp.data.embeddings import Embeddings
from labeldp.data.tables import Table
from labeldp.privacy.mechanisms.stable import StableVote
from labeldp.recipes.advisor import forecast
from labeldp.recipes.advisor.forecast import advise
from labeldp.recipes.advisor.formulas import response_accuracy
from labeldp.recipes.pipelines import auto
from labeldp.recipes.pipelines.additive import additive_steps, choose_layout
from labeldp.recipes.pipelines.teachers import QueryPlan, choose_confident_votes, choose_stable_votes
from labeldp.recipes.task import Task


def _table(rows):
    """Make a table of as many columns as a plan assumes."""
    return Table.fit(pl.DataFrame(np.random.default_rng(0).normal(size=(50, 16)))).select(np.arange(rows) % 50)


RECIPES = {
    *("randres", "randres-mixup", "randres-ssl", "randres-augdescent", "randres-denoise", "lp-mst", "cluster-prior"),
    *(
        "alibi",
        "noise-cluster",
        "moments",
        "additive",
        "log-linear",
        "smooth-moments",
        "refine",
        "pate-fm",
        "pate-fm-ssl",
        "pate-fm-augdescent",
        "pate-fm-denoise",
    ),
    *("pate", "pate-coteaching", "pate-plus", "pate-plus-plus", "stable-vote"),
}


@given(st.integers(1, 10**6), st.integers(2, 200), st.floats(0.01, 5), st.booleans(), st.sampled_from([0.0, 1e-5]))
@settings(max_examples=15)
def test_more_epsilon_never_hurts_a_line(rows, classes, epsilon, gpu, delta):
    low, high = (advise(rows, classes, e, delta, "images", "cuda" if gpu else "cpu") for e in (epsilon, 1.5 * epsilon))
    assert {found.recipe for found in low.forecasts} == RECIPES
    for before, after in zip(low.forecasts, high.forecasts, strict=True):
        for name in ("label_accuracy", "agreed_accuracy", "nats", "clean_labels_per_class"):
            if getattr(before, name) is not None:
                assert getattr(before, name) <= getattr(after, name) + 1e-3  # sums stand for integrals there
        assert before.min_epsilon == after.min_epsilon  # a threshold does not depend on where one stands
    assert low.max_clusters <= high.max_clusters
    assert not low.forecast(low.recommended).reason


def test_rare_positives_make_noisy_labels_worth_less_and_sums_harder_to_see():
    plain, rare = advise(20_000, 2, 1.0, 1e-6), advise(20_000, 2, 1.0, 1e-6, positives=0.01)
    assert rare.forecast("randres").clean_labels_per_class < plain.forecast("randres").clean_labels_per_class / 50
    assert rare.forecast("moments").min_epsilon > 10 * plain.forecast("moments").min_epsilon
    even = advise(20_000, 2, 1.0, 1e-6, positives=0.5)
    for before, after in zip(plain.forecasts, even.forecasts, strict=True):
        assert after.min_epsilon == before.min_epsilon
        assert after.clean_labels_per_class == (
            before.clean_labels_per_class and pytest.approx(before.clean_labels_per_class)
        )


@pytest.mark.parametrize(
    ("rows", "epsilon", "features", "positives", "best", "reason"),
    [
        (20_000, 1.0, "table", 0.01, "additive", "sums by class stand out"),
        (
            20_000,
            4.0,
            "table",
            0.01,
            "additive",
            "sums by class stand out",
        ),  # 98 % of labels are right, 36 % of positive ones
        (20_000, 9.0, "table", 0.01, "randres", "plain training will do"),
        (10**6, 3.0, "images", 0.01, "randres-mixup", "are worth about"),
        (2_000, 0.1, "table", 0.01, "log-linear", "Nothing works well"),
        (2_000, 1.0, "images", 0.01, "randres-mixup", "Nothing works well"),
    ],
)
def test_rare_positives_have_a_choice_of_their_own(rows, epsilon, features, positives, best, reason):
    advice = advise(rows, 2, epsilon, 1e-6, features, "cuda", positives=positives)
    assert advice.recommended == best
    assert reason in advice.reason
    assert "Accuracy says little here: 99.0% is what always saying no gets" in advice.reason
    assert "Accuracy says little" not in advise(rows, 2, epsilon, 1e-6, features, "cuda").reason


# Purity is that of the clusters in the framework paper's first pipeline; the recipes are the best of its tables
# among those without teachers, as far as pure noise allows them.
@pytest.mark.parametrize(
    ("rows", "classes", "purity", "epsilon", "best"),
    [
        (50_000, 10, 0.883, 0.003, "noise-cluster"),
        (50_000, 10, 0.883, 0.5, "randres-denoise"),
        (50_000, 10, 0.883, 1.0, "randres-augdescent"),
        (50_000, 10, 0.883, 4.0, "randres-augdescent"),
        (50_000, 10, 0.883, 8.0, "randres-mixup"),
        (50_000, 100, 0.345, 1.0, "noise-cluster"),
        (50_000, 100, 0.345, 2.0, "noise-cluster"),
        (50_000, 100, 0.345, 4.0, "randres-augdescent"),
        (90_000, 10, 0.628, 0.5, "randres-denoise"),
        (90_000, 10, 0.628, 1.0, "randres-augdescent"),
    ],
)
def test_the_choice_is_that_of_the_papers(rows, classes, purity, epsilon, best):
    assert advise(rows, classes, epsilon, 0.0, "images", "cuda", purity=purity).recommended == best


@pytest.mark.parametrize(
    ("epsilon", "best"),
    [(0.01, "noise-cluster"), (0.1, "refine"), (0.5, "refine"), (4.0, "refine"), (8.0, "randres-mixup")],
)
def test_pictures_with_a_delta_are_refined_where_sums_say_enough(epsilon, best):
    assert advise(50_000, 10, epsilon, 1e-5, "images", "cuda").recommended == best
    assert advise(50_000, 10, epsilon, 1e-5, "embeddings").forecast("refine").reason == "needs images"


@pytest.mark.parametrize(
    ("epsilon", "expected_uses", "delta"),
    [
        (0.003, [("GroupHistogram", 0.003)], 0.0),
        (0.1, [("LinearQuery", 0.1)], 1e-5),
        (0.5, [("LinearQuery", 0.1), ("LinearQuery", 0.1), ("LinearQuery", 0.3)], 1e-5),
        (2.0, [("LinearQuery", 0.1), ("LinearQuery", 0.1), ("LinearQuery", 0.2), ("RRMaxInformation", 1.6)], 1e-5),
    ],
)
def test_the_plan_of_refine_names_all_that_it_asks_for(epsilon, expected_uses, delta):
    uses = advise(50_000, 10, epsilon, 1e-5, "images").forecast("refine").uses
    assert [use.mechanism for use in uses] == [mechanism for mechanism, _ in expected_uses]
    assert [use.epsilon for use in uses] == pytest.approx([own for _, own in expected_uses])
    assert sum(use.delta for use in uses) == pytest.approx(delta)


def test_the_vote_on_cifar10_survives_down_to_the_epsilon_that_the_paper_found():
    found = advise(50_000, 10, 1.0, 1e-5, "images", purity=0.883).forecast("noise-cluster")
    assert 0.002 < found.min_epsilon < 0.005


def test_choices_elsewhere():
    assert advise(50_000, 10, 0.1, 1e-5, "embeddings").recommended == "log-linear"
    assert advise(50_000, 2, 1.0).recommended == "additive"
    assert advise(50_000, 21, 1.0).recommended == "log-linear"  # bins are slow to fit for many classes
    assert advise(50_000, 2, 4.0).recommended == "randres"  # 98 % of the labels stay right
    assert advise(800, 2, 1.0, features="embeddings").recommended == "cluster-prior"  # dense sums of few rows drown
    assert advise(200, 2, 1.0, features="embeddings").recommended == "noise-cluster"
    assert "nothing works well" in advise(100, 3, 0.01).reason
    slow = advise(50_000, 10, 0.5, features="images")
    assert "embeddings" in slow.reason


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 2.0])
@pytest.mark.parametrize(("rows", "classes"), [(1_000, 2), (20_000, 2), (20_000, 20), (200_000, 3), (20_000, 21)])
def test_tables_get_bins_where_auto_takes_them(rows, classes, epsilon, delta):
    task = Task(_table(rows), ldp.LabelSpace(list(range(classes))), np.ones(rows, bool), epsilon, delta)
    advice = advise(rows, classes, epsilon, delta)
    expected = "additive" if auto._uses_bins(task) else "log-linear"
    assert advice.recommended in {expected, "cluster-prior", "noise-cluster"}
    assert advice.recommended == expected or advice.forecast("moments").min_epsilon > epsilon


@pytest.mark.parametrize(
    ("rows", "epsilon", "delta", "crosses"),
    [(20_000, 1.0, 0.0, 0), (100_000, 1.0, 1e-5, 4), (100_000, 2.0, 0.0, 4), (10**6, 1.0, 1e-5, 8)],
)
def test_the_plan_of_additive_names_what_the_recipe_reserves(rows, epsilon, delta, crosses):
    task = Task(_table(rows), ldp.LabelSpace([0, 1]), np.ones(rows, bool), epsilon, delta)
    uses = advise(rows, 2, epsilon, delta).forecast("additive").uses
    assert [use.mechanism for use in uses] == ["LinearQuery"] + ["LargestResiduals", "LinearQuery"] * crosses
    layout = choose_layout(task, epsilon)
    assert layout.n_selected == crosses
    reserve = next(additive_steps(task, layout, epsilon, delta))
    if crosses:
        assert reserve.steps == [calibrated_loss(use.epsilon, use.delta) for use in uses]
        assert compose(reserve.steps, delta) <= epsilon
    else:
        assert (reserve.mechanism.epsilon, reserve.mechanism.delta) == (epsilon, delta)


@pytest.mark.parametrize(
    ("classes", "epsilon", "expected_uses"),
    [
        (10, 1.4, [("LinearQuery", 1.4)]),
        (10, 2.0, [("LinearQuery", 1.0), ("RandomizedResponse", 1.0)]),
        (20, 4.0, [("LinearQuery", 1.2), ("RandomizedResponse", 2.8)]),
        (21, 4.0, [("LinearQuery", 1.2), ("RRWithPrior", 2.8)]),
    ],
)
def test_the_plan_of_log_linear_names_all_that_it_asks_for(classes, epsilon, expected_uses):
    found = advise(50_000, classes, epsilon, 1e-5, "embeddings").forecast("log-linear")
    assert [(use.mechanism, use.epsilon) for use in found.uses] == expected_uses
    assert [use.delta for use in found.uses] == [1e-5] + [0.0] * (len(expected_uses) - 1)
    plain = found.uses[-1].mechanism == "RandomizedResponse"
    assert found.label_accuracy == (response_accuracy(expected_uses[-1][1], classes) if plain else None)


def test_an_additive_model_needs_a_table_and_more_than_the_smallest_epsilon():
    assert advise(50_000, 10, 1.0, 1e-5, "embeddings").forecast("additive").reason == "needs a table"
    smallest = advise(10**9, 2, 1e-9, 0.1)
    assert smallest.forecast("additive").reason == "needs a larger epsilon"
    assert smallest.recommended == "log-linear"


def test_what_cannot_run_says_why():
    pure = advise(50_000, 10, 1.0)
    assert {found.recipe for found in pure.forecasts if "delta" in found.reason} == {
        name for name in RECIPES if name.startswith("pate") or name == "stable-vote"
    }
    assert "teachers" in advise(100, 10, 0.1, 1e-5, "images").forecast("pate-fm").reason


def test_stable_votes_pass_with_the_teachers_that_the_plan_names():
    found = advise(10**6, 10, 2.0, 1e-5, "embeddings", purity=0.8).forecast("stable-vote")
    votes = StableVote(2.0, 1e-5, 600, 10)
    others = found.n_teachers * (0.2 / 9)
    lead = np.array([[round(0.8 * found.n_teachers), *[int(others)] * 9]])
    passed = [votes.draw(lead, Seeded(seed)).n_answered for seed in range(300)]
    assert np.mean(passed) > 0.85
    fewer = lead // 2
    assert np.mean([votes.draw(fewer, Seeded(seed)).n_answered for seed in range(100)]) < 0.3


@pytest.mark.parametrize(
    ("recipe", "votes", "rows", "classes", "epsilon"),
    [
        ("pate-fm", choose_confident_votes, 48_842, 2, 1.0),
        ("pate-plus", choose_confident_votes, 20_000, 10, 0.5),
        ("pate-fm-ssl", choose_confident_votes, 50_000, 100, 2.0),
        ("stable-vote", choose_stable_votes, 48_842, 2, 1.0),
        ("stable-vote", choose_stable_votes, 60_000, 10, 2.0),
    ],
)
def test_a_plan_names_the_teachers_that_the_recipe_takes(recipe, votes, rows, classes, epsilon):
    features = Embeddings(np.zeros((rows, 1), np.float32))
    task = Task(features, ldp.LabelSpace(list(range(classes))), np.ones(rows, bool), epsilon, 1e-5)
    expected, _ = votes(QueryPlan(task, None, 20 * classes, 60 * classes, 0.5))
    assert advise(rows, classes, epsilon, 1e-5, "embeddings").forecast(recipe).n_teachers == expected


def test_every_recipe_spends_the_budget_once():
    for found in advise(50_000, 10, 0.5, 1e-5, "images").forecasts:
        if found.uses:
            assert math.isclose(
                sum(use.epsilon * (use.row_fraction if found.recipe == "lp-mst" else 1) for use in found.uses), 0.5
            )


def test_the_split_is_that_of_the_recipe():
    clusters = pytest.importorskip("labeldp.recipes.pipelines.clusters")
    assert (
        inspect.signature(clusters.cluster_prior).parameters["epsilon_fraction"].default
        == forecast.PRIOR_EPSILON_FRACTION
    )


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 50.0, 1e5])
@pytest.mark.parametrize("delta", [0.0, 1e-15, 0.1])
def test_extremes_are_planned_too(epsilon, delta):
    advice = advise(10**9, 100_000, epsilon, delta)
    assert all(0 <= nats <= math.log(100_000) + 1e-9 for nats in advice.nats.values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_rows": 0},
        {"n_rows": 1.5},
        {"n_classes": 1},
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": 1.0},
        {"features": "sounds"},
        {"device": "abacus"},
        {"n_clusters": -1},
        {"n_clusters": 0},
        {"purity": 0.1},
        {"purity": 1.1},
        {"purity": math.nan},
    ],
)
def test_bad_input(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        advise(**{"n_rows": 1000, "n_classes": 10, "epsilon": 1.0, **wrong})
