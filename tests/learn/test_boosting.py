import builtins
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit, softmax
from scripted import Seeded
from sklearn.metrics import log_loss, roc_auc_score

import labeldp as ldp
from labeldp.data import Embeddings, Table
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn import Boosting
from labeldp.learn.boosting import require_lightgbm
from labeldp.learn.predictor import load_predictor, with_lineage
from labeldp.learn.ridge import Ridge
from labeldp.learn.short_training import shorten_training
from labeldp.mechanisms import LinearQuery, OneHotLaplace, RRWithPrior
from labeldp.report.card.origin import describe_model

SPACE = ldp.LabelSpace(["no", "yes"])
COUNT, NEW = 40_000, 20_000


class Problem:
    """A table with a rare class, whose log-odds are not linear, and what is missing says something."""

    def __init__(self, positives=0.06, seed=0):
        generator = np.random.default_rng(seed)
        rows = generator.normal(size=(COUNT + NEW, 4))
        categories = generator.integers(0, 6, COUNT + NEW)
        gaps = generator.random(COUNT + NEW) < 0.2
        score = 1.5 * rows[:, 0] + np.abs(rows[:, 1]) + (categories == 2) + gaps
        score += brentq(lambda shift: expit(score + shift).mean() - positives, -20, 20)
        self.probabilities = expit(score)
        codes = (generator.random(COUNT + NEW) < self.probabilities).astype(int)
        columns = {f"x{index}": pl.Series(column) for index, column in enumerate(rows.T)}
        columns["x2"] = pl.Series(np.where(gaps, np.nan, rows[:, 2])).fill_nan(None)
        columns["kind"] = pl.Series([f"kind {kind}" for kind in categories])
        frame = pl.DataFrame(columns)
        self.table = Table.fit(frame[:COUNT])
        self.new = self.table.apply(frame[COUNT:])
        self.codes, self.truth = codes[:COUNT], codes[COUNT:]
        self.labels = np.array(["no", "yes"])[self.codes]

    def vault(self, epsilon=20.0):
        return ldp.Vault(self.labels, SPACE, ldp.Budget(epsilon))

    def release(self, mechanism, rows=None):
        return self.vault().release(mechanism, row_selection=rows)


@pytest.fixture(scope="module")
def problem():
    return Problem()


@pytest.mark.parametrize("mechanism", [ldp.RandomizedResponse(1.0), OneHotLaplace(1.0)])
def test_probabilities_are_those_of_the_true_label(problem, mechanism):
    model = Boosting().fit(problem.table, problem.release(mechanism))
    probabilities = model.predict_proba(problem.new)[:, 1]
    share = problem.probabilities[COUNT:].mean()
    # The share itself is known from 40,000 answers to a deviation of 0.0054.
    assert abs(probabilities.mean() - share) < 0.022
    assert log_loss(problem.truth, probabilities) < log_loss(problem.truth, np.full(NEW, share)) - 0.012
    assert roc_auc_score(problem.truth, probabilities) > 0.75


def test_the_mean_probability_is_the_share_that_the_whole_release_says(problem):
    """Few trees leave small probabilities too large: by 0.01 to 0.02 on average here, without the last shift."""
    release = problem.release(ldp.RandomizedResponse(1.0))
    model = Boosting().fit(problem.table, release)
    retained = np.e / (np.e + 1)
    estimate = (np.mean(release.labels() == 1) - (1 - retained)) / (2 * retained - 1)
    assert len(model.trees)
    assert model.predict_proba(problem.table)[:, 1].mean() == pytest.approx(estimate, abs=2e-3)


def test_little_noise_costs_little(problem):
    clean = Boosting().fit(problem.table, problem.release(ldp.RandomizedResponse(20.0)))
    noisy = Boosting().fit(problem.table, problem.release(ldp.RandomizedResponse(4.0)))
    ideal = log_loss(problem.truth, problem.probabilities[COUNT:])
    of_clean, of_noisy = (log_loss(problem.truth, m.predict_proba(problem.new)[:, 1]) for m in (clean, noisy))
    assert of_clean < ideal + 0.01
    assert of_noisy < of_clean + 0.01
    assert abs(noisy.predict_proba(problem.new)[:, 1].mean() - problem.probabilities[COUNT:].mean()) < 0.008


def test_more_classes_and_candidates():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(30_000, 5)).astype(np.float32)
    probabilities = softmax(np.stack([rows[:, 0] * rows[:, 1], rows[:, 2], np.abs(rows[:, 3])], axis=1) * 1.5, axis=1)
    codes = (generator.random((len(rows), 1)) > probabilities.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    space, features = ldp.LabelSpace([0, 1, 2]), Embeddings(rows)
    prior = 0.8 * np.full_like(probabilities, 1 / 3) + 0.2 * probabilities
    for mechanism in (
        ldp.RandomizedResponse(3.0),
        RRWithPrior(3.0, prior / prior.sum(axis=1, keepdims=True)),
    ):
        release = ldp.Vault(codes, space, ldp.Budget(3.0)).release(mechanism)
        found = Boosting().fit(features, release).predict_proba(features)
        surprise = (probabilities * np.log(probabilities / found)).sum(axis=1).mean()
        assert surprise < 0.35 * (probabilities * np.log(probabilities / probabilities.mean(axis=0))).sum(axis=1).mean()
        assert np.allclose(found.mean(axis=0), probabilities.mean(axis=0), atol=0.03)
        assert np.allclose(found.sum(axis=1), 1)


def linear_start(problem, vault, epsilon=1.0):
    normalizer = RowNormalizer.fit(problem.table)
    return Ridge(normalizer).fit(problem.table, vault.release(LinearQuery(normalizer(problem.table), epsilon)))


def test_trees_learn_what_a_start_misses(problem):
    vault = problem.vault()
    start = linear_start(problem, vault)
    release = vault.release(ldp.RandomizedResponse(2.0))
    alone, both = Boosting().fit(problem.table, release), Boosting().fit(problem.table, release, start)
    of = {
        name: log_loss(problem.truth, model.predict_proba(problem.new)[:, 1])
        for name, model in {"start": start, "alone": alone, "both": both}.items()
    }
    assert of["both"] < min(of["start"], of["alone"]) - 0.002
    assert both.guarantee.epsilon == pytest.approx(3.0)
    assert set(both.lineage) == {*start.lineage, *release.lineage}
    assert describe_model(both) == f"linear model, with {len(both.trees)} boosted trees added"


def test_the_mean_of_two_models_is_that_of_their_scores(problem):
    vault = problem.vault()
    start, release = linear_start(problem, vault), vault.release(ldp.RandomizedResponse(2.0))
    on_top, alone = Boosting().fit(problem.table, release, start), Boosting().fit(problem.table, release)
    mean = Boosting().fit_averaged(problem.table, release, start)
    scores = [logit(model.predict_proba(problem.new)[:, 1]) for model in (on_top, alone, mean)]
    away = scores[2] - (scores[0] + scores[1]) / 2
    assert np.ptp(away) < 1e-5  # one shift of all scores is left, which restores the share of the class
    shares = [model.predict_proba(problem.table)[:, 1].mean() for model in (on_top, alone, mean)]
    assert shares[2] == pytest.approx((shares[0] + shares[1]) / 2, abs=1e-6)
    assert len(mean.trees) == len(on_top.trees) + len(alone.trees)
    assert set(mean.lineage) == {*start.lineage, *release.lineage}


def test_without_trees_of_its_own_the_mean_is_the_first_model(problem):
    rows = Embeddings(np.ones((COUNT, 2)))  # nothing to split
    vault = problem.vault()
    start = Boosting(max_rounds=0).fit(rows, vault.release(ldp.RandomizedResponse(1.0)))
    release = vault.release(ldp.RandomizedResponse(2.0))
    one, mean = Boosting().fit(rows, release, start), Boosting().fit_averaged(rows, release, start)
    assert mean.start_weight == 1.0
    assert np.array_equal(mean.predict_proba(rows), one.predict_proba(rows))


def test_with_a_noisy_start_the_mean_of_two_models_is_better_than_either():
    """Means over draws of 3,000 rows: trees on top keep the noise of the start, and those without it know less."""
    found = []
    for seed in range(8):
        small = Problem(positives=0.2, seed=seed)
        rows = np.arange(3_000)
        table = small.table.select(rows)
        vault = ldp.Vault(small.labels[rows], SPACE, ldp.Budget(9.0))
        vault._bits = Seeded(seed)
        start = linear_start(SimpleNamespace(table=table), vault, 0.1)
        release = vault.release(ldp.RandomizedResponse(2.0))
        models = (
            Boosting().fit(table, release, start),
            Boosting().fit(table, release),
            Boosting().fit_averaged(table, release, start),
        )
        found.append([roc_auc_score(small.truth, model.predict_proba(small.new)[:, 1]) for model in models])
    on_top, alone, mean = np.mean(found, axis=0)
    assert mean > max(on_top, alone) + 0.001


def test_where_trees_gain_nothing_the_model_is_its_start(problem):
    """Columns that say nothing: of some releases, the held-out rows prefer no tree, and else few."""
    rows = Embeddings(np.random.default_rng(0).normal(size=(COUNT, 3)))
    start = Boosting(max_rounds=0).fit(rows, problem.release(ldp.RandomizedResponse(1.0)))
    models = [Boosting(patience=5).fit(rows, problem.release(ldp.RandomizedResponse(1.0)), start) for _ in range(24)]
    without = [model for model in models if not len(model.trees)]
    assert without
    for model in without:
        if not model.constant.any():  # where the release agrees with the start's shares
            assert np.allclose(model.predict_proba(rows), start.predict_proba(rows), rtol=0, atol=1e-12)
    assert np.median([np.std(model.predict_proba(rows)[:, 1]) for model in models]) < 0.02


def test_a_start_with_shares_that_the_release_contradicts_is_shifted(problem):
    vault = problem.vault()
    start = Boosting(max_rounds=0).fit(problem.table, vault.release(ldp.RandomizedResponse(3.0)))
    wrong = replace(start, constant=start.constant + 2.5)
    model = Boosting(max_rounds=0).fit(problem.table, vault.release(ldp.RandomizedResponse(2.9)), wrong)
    assert abs(model.predict_proba(problem.new)[:, 1].mean() - problem.codes.mean()) < 0.01
    assert wrong.predict_proba(problem.new)[:, 1].mean() > 0.35


def test_a_start_that_rests_on_the_same_release_is_not_shifted(problem):
    release = problem.vault().release(ldp.RandomizedResponse(3.0))
    start = Boosting(max_rounds=0).fit(problem.table, release)
    other = replace(start, constant=start.constant + 2.5)
    model = Boosting(max_rounds=0).fit(problem.table, release, other)
    assert np.allclose(model.predict_proba(problem.new), other.predict_proba(problem.new))


def test_only_rows_that_were_released_count(problem):
    part = np.arange(0, COUNT, 4)
    release = problem.release(ldp.RandomizedResponse(4.0), part)
    some = problem.table.select(part)
    alone = replace(release, n_rows=len(part), row_mask=None, codes=release.codes[part])
    found, expected = (
        Boosting().fit(*given).predict_proba(problem.new) for given in ((problem.table, release), (some, alone))
    )
    assert np.allclose(found, expected)


def test_a_posterior_is_learnt_as_it_is(problem):
    release = problem.release(ldp.RandomizedResponse(1.0)).with_posterior(
        np.stack([1 - problem.probabilities, problem.probabilities], axis=1)[:COUNT]
    )
    probabilities = Boosting(max_rounds=200).fit(problem.table, release).predict_proba(problem.new)[:, 1]
    assert np.abs(probabilities - problem.probabilities[COUNT:]).mean() < 0.02


def test_the_same_release_and_seed_give_the_same_model(problem):
    release = problem.release(ldp.RandomizedResponse(2.0))
    one, two = (
        Boosting(max_rounds=20, seed=3).fit(problem.table, release).predict_proba(problem.new) for _ in range(2)
    )
    assert np.array_equal(one, two)


@pytest.mark.parametrize("rows", [1, 2, 7, 30, 60, 400])
def test_small_tables(rows):
    table = Table.fit(pl.DataFrame({"a": np.arange(rows) % 5, "b": ["x", "y"] * (rows // 2) + ["x"] * (rows % 2)}))
    vault = ldp.Vault([SPACE.classes[index % 2] for index in range(rows)], SPACE, ldp.Budget(30.0))
    model = Boosting().fit(table, vault.release(ldp.RandomizedResponse(30.0)))
    probabilities = model.predict_proba(table)
    assert np.isfinite(probabilities).all()
    if rows == 400:
        assert np.mean(probabilities.argmax(axis=1) == np.arange(rows) % 2) == 1.0


def test_a_column_without_variety_is_no_problem():
    rows = Embeddings(np.ones((300, 2)))
    vault = ldp.Vault(["no", "yes", "no"] * 100, SPACE, ldp.Budget(9.0))
    probabilities = Boosting().fit(rows, vault.release(ldp.RandomizedResponse(9.0))).predict_proba(rows)
    assert np.allclose(probabilities[:, 1], 1 / 3, atol=0.02)


def test_a_rehearsal_grows_few_trees(problem):
    with shorten_training():
        model = Boosting(validation_fraction=0.0).fit(problem.table, problem.release(ldp.RandomizedResponse(4.0)))
    assert len(model.trees) == 5


@pytest.mark.parametrize("form", ["alone", "with a start", "averaged"])
def test_a_model_is_saved_and_loaded(problem, tmp_path, form):
    vault = problem.vault()
    start, release = linear_start(problem, vault), vault.release(ldp.RandomizedResponse(3.0))
    learner = Boosting(max_rounds=10)
    model = {
        "alone": lambda: learner.fit(problem.table, release),
        "with a start": lambda: learner.fit(problem.table, release, start),
        "averaged": lambda: learner.fit_averaged(problem.table, release, start),
    }[form]()
    assert model.start_weight == (0.5 if form == "averaged" else 1.0)
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m")
    assert np.array_equal(again.predict_proba(problem.new), model.predict_proba(problem.new))
    assert np.array_equal(again.predict(problem.new), model.predict(problem.new))
    assert (again.space, again.guarantee, again.lineage) == (model.space, model.guarantee, model.lineage)
    assert set(again.predict(problem.new)) <= {"no", "yes"}


def test_a_crafted_file_is_refused(problem, tmp_path):
    Boosting(max_rounds=5).fit(problem.table, problem.release(ldp.RandomizedResponse(3.0))).save(tmp_path / "m")
    with np.load(tmp_path / "m" / "arrays.npz") as file:
        arrays = dict(file)
    facts = json.loads((tmp_path / "m" / "model.json").read_text())
    loop, wide, vague = arrays | {"left": np.zeros_like(arrays["left"])}, dict(arrays), dict(arrays)
    wide["n_outputs"], vague["constant"] = np.array(2), np.array([np.nan])
    for damaged, changes in (
        (loop, {}),
        (wide, {}),
        (vague, {}),
        (arrays, {"start": "yes"}),
        (arrays, {"start_weight": 0}),
        (arrays, {"start_weight": "many"}),
        (arrays, {"space": None}),
    ):
        np.savez(tmp_path / "m" / "arrays.npz", **damaged)
        (tmp_path / "m" / "model.json").write_text(json.dumps(facts | changes))
        with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
            load_predictor(tmp_path / "m")
    (tmp_path / "m" / "model.json").write_text(json.dumps(facts | {"start": True}))
    with pytest.raises(ldp.InputError, match="There is no folder"):
        load_predictor(tmp_path / "m")


def test_a_model_that_was_chosen_rests_on_the_choice_too(problem):
    vault = problem.vault()
    model = Boosting(max_rounds=3).fit(
        problem.table, vault.release(ldp.RandomizedResponse(1.0)), linear_start(problem, vault)
    )
    choice = vault.release(ldp.RandomizedResponse(0.5))
    chosen = with_lineage(model, [choice])
    assert set(chosen.lineage) == {*model.lineage, *choice.lineage}
    assert chosen.guarantee.epsilon == pytest.approx(2.5)
    assert np.array_equal(chosen.predict_proba(problem.new), model.predict_proba(problem.new))


def test_what_does_not_belong_together_is_said_in_a_sentence(problem):
    release = problem.release(ldp.RandomizedResponse(1.0))
    with pytest.raises(ldp.InputError, match="20000 rows of features and 40000 in the release"):
        Boosting().fit(problem.new, release)
    with pytest.raises(ldp.InputError, match="has no evidence about any row"):
        Boosting().fit(problem.table, release.keep(np.zeros(COUNT, bool)))
    others = ldp.Vault([0] * COUNT, ldp.LabelSpace([0, 1]), ldp.Budget(1.0)).release(ldp.RandomizedResponse(1.0))
    with pytest.raises(ldp.InputError, match="a model of the release's classes"):
        Boosting().fit(problem.table, release, Boosting(max_rounds=0).fit(problem.table, others))


@pytest.mark.parametrize(
    "settings",
    [
        {"max_rounds": -1},
        {"max_leaves": 1},
        {"patience": 0},
        {"learning_rate": 0},
        {"validation_fraction": 1.0},
        {"validation_fraction": -0.1},
    ],
    ids=str,
)
def test_settings_without_sense_are_refused(settings):
    with pytest.raises(ldp.InputError, match="Boosting needs"):
        Boosting(**settings)


@pytest.mark.parametrize("problem_of_import", [ImportError("lightgbm"), OSError("libgomp.so.1: cannot open")])
def test_without_lightgbm_one_sentence_says_what_to_install(problem_of_import, monkeypatch):
    usual = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "lightgbm":
            raise problem_of_import
        return usual(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ldp.InputError, match="pip install lightgbm and, on Linux, the system library libgomp1"):
        require_lightgbm()
