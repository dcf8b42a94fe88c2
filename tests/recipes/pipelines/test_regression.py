"""Recipes for numbers: what they cost, what they learn, and what they refuse."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rated import Ratings
from scripted import Seeded
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor

import labeldp as ldp
from labeldp.data import Embeddings, Images, Table
from labeldp.learn import Model, Training
from labeldp.learn.additive.model import AdditiveNumberModel
from labeldp.learn.backbones import build
from labeldp.learn.encoded import concat_encoders
from labeldp.learn.predictor import load_predictor
from labeldp.learn.regression_boosting import BoostedRegressionModel, RegressionBoosting
from labeldp.mechanisms import GroupHistogram, NumberSums
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.pipelines import regression
from labeldp.recipes.registry import RECIPES, get_recipe
from labeldp.recipes.task import Task
from labeldp.recipes.training import train

get_recipe("bins")
SPACE = ldp.LabelSpace.range(0, 100, 1)
NAMES = ["auto", *sorted(name for name, recipe in RECIPES.items() if recipe.labels == "numbers")]
OF_CLASSES = sorted(name for name, recipe in RECIPES.items() if recipe.labels == "classes")


def people(rows, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 4)).astype(np.float32)
    y = np.clip(np.rint(40 + x @ [12, -6, 4, 0] + generator.normal(0, 6, rows)), 0, 100)
    return Embeddings(x), y


def vault(labels, epsilon, delta=0.0, seed=0, space=SPACE):
    opened = ldp.Vault(labels, space, ldp.Budget(epsilon, delta))
    opened._bits = Seeded(seed)
    return opened


def task(features, epsilon, delta=0.0, **more):
    training = Training(epochs=3, batch_size=64, device="cpu")
    return Task(features, SPACE, all_rows(len(features)), epsilon, delta, training=training, **more)


FEATURES, LABELS = people(600)
NEW, TRUTH = people(1000, 1)


def error(model):
    return float(((model.predict(NEW) - TRUTH) ** 2).mean())


def test_the_names():
    assert NAMES == ["auto", "bins", "laplace", "sums"]


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 2.7])
@pytest.mark.parametrize("name", NAMES)
def test_the_cost_is_epsilon_and_no_more(name, epsilon):
    opened = vault(LABELS, epsilon)
    trained = train(opened, task(FEATURES, epsilon), name)
    assert trained.guarantee.epsilon <= epsilon
    assert trained.guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (trained.guarantee.delta, opened.guarantee().delta) == (0.0, 0.0)
    assert opened.guarantee().epsilon <= epsilon  # the rows that score have the same epsilon for themselves
    assert trained.model.guarantee.epsilon <= trained.guarantee.epsilon
    assert trained.score.rmse.high > 0


def test_delta_buys_gaussian_noise_for_sums():
    trained = train(vault(LABELS, 1.0, 1e-6), task(FEATURES, 1.0, 1e-6), "sums")
    assert (trained.guarantee.epsilon, trained.guarantee.delta) == (1.0, 1e-6)
    assert train(vault(LABELS, 1.0, 1e-6), task(FEATURES, 1.0, 1e-6), "bins").guarantee.delta == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_rows_outside_the_task_are_never_released(name):
    rows = np.arange(600) % 3 > 0
    opened = vault(LABELS, 2.7)
    train(opened, replace(task(FEATURES, 2.7), row_mask=rows), name)
    assert opened.remaining(~rows)[0] == 2.7
    assert opened.remaining(rows)[0] < 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_saved_and_predicts_the_same(name, tmp_path):
    model = train(vault(LABELS, 3.0), task(FEATURES, 3.0), name).model
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert np.allclose(again.predict(NEW), model.predict(NEW), atol=1e-5)
    assert np.allclose(again.predict_proba(NEW).sum(axis=1), 1, atol=1e-5)
    assert again.predict(NEW).dtype.kind == "f"


@pytest.mark.parametrize("name", ["bins", "sums", "auto"])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_they_beat_plain_noise(name, epsilon):
    def mean_error(name):
        runs = [train(vault(LABELS, epsilon, seed=s), task(FEATURES, epsilon), name, score=False) for s in range(5)]
        return np.mean([error(trained.model) for trained in runs])

    assert mean_error(name) < mean_error("laplace")


@pytest.mark.parametrize("model", [Ridge(1.0), HistGradientBoostingRegressor(max_iter=30), "trees", "ridge", "mlp"])
def test_hardly_any_noise_gives_hardly_any_error(model):
    trained = train(vault(LABELS, 200.0), task(FEATURES, 200.0, model=model), "bins", score=False)
    assert error(trained.model) < 0.6 * TRUTH.var()


@pytest.mark.parametrize("loss", ["absolute", "poisson"])
@pytest.mark.parametrize("model", ["auto", "linear"])
def test_other_losses(loss, model):
    trained = train(vault(LABELS, 30.0), task(FEATURES, 30.0, model=model), "bins", {"loss": loss}, score=False)
    assert error(trained.model) < 0.9 * TRUTH.var()


def test_of_many_rows_auto_lets_a_private_choice_decide():
    features, labels = people(2600)
    trained = train(vault(labels, 1.0), task(features, 1.0), "auto")
    assert trained.n_candidates == 3  # embeddings: a line from sums, one from bins, and a network
    assert [release.mechanism for release in trained.releases] == ["NumberSums", "RROnBins", "NoisyMinLoss"]
    assert error(trained.model) < 0.6 * TRUTH.var()


def test_sums_are_chosen_where_noise_is_small_against_rows():
    assert regression.sums_are_better(task(people(5000)[0], 0.5))
    assert not regression.sums_are_better(task(people(60)[0], 4.0))
    requested = train(vault(LABELS, 0.5), task(FEATURES, 0.5), "auto", score=False).releases
    assert [release.mechanism for release in requested] in (["NumberSums"], ["NumberSums", "RROnBins"])


def test_the_first_share_is_what_the_mean_needs():
    settings = ((50, 0.5), (400, 1.0), (5000, 4.0))
    shares = [regression.prior_epsilon_fraction(task(people(rows)[0], epsilon)) for rows, epsilon in settings]
    assert shares[0] == 0.5 > shares[1] > shares[2] == 0.1


def test_a_histogram_is_asked_for_where_its_counts_stand_out():
    few, many = task(FEATURES, 1.0), task(people(5000)[0], 1.0)
    assert isinstance(regression.make_prior_query(few, 0.1), NumberSums)
    assert isinstance(regression.make_prior_query(many, 0.3), GroupHistogram)
    labels = people(5000)[1]
    known = {
        kind: regression.LabelPrior.of(vault(labels, 0.3).release(kind))
        for kind in (
            regression.make_prior_query(many, 0.3),
            NumberSums(np.ones((5000, 1)), 0.3, n_values=101),
        )
    }
    for each in known.values():
        assert each.center == pytest.approx(labels.mean(), abs=3)
        assert each.deviation == pytest.approx(labels.std(), rel=0.35)
        assert each.prior.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", OF_CLASSES)
def test_recipes_for_classes_refuse_numbers_before_anything_is_spent(name):
    opened = vault(LABELS, 1.0)
    with pytest.raises(ldp.InputError, match=f"'{name}' learns classes, and these labels are numbers: .*bins"):
        train(opened, task(FEATURES, 1.0), name)
    assert not opened.ledger.entries()


@pytest.mark.parametrize("name", ["bins", "laplace", "sums"])
def test_recipes_for_numbers_refuse_classes_before_anything_is_spent(name):
    space = ldp.LabelSpace(["a", "b"])
    opened = vault(["a", "b"] * 300, 1.0, space=space)
    with pytest.raises(ldp.InputError, match=f"'{name}' learns numbers, and these labels are classes: .*randres"):
        train(opened, replace(task(FEATURES, 1.0), space=space), name)
    assert not opened.ledger.entries()


BAD = {
    "a classifier": ("bins", {}, {"model": LogisticRegression()}, "LogisticRegression is no regressor"),
    "no weights": ("bins", {}, {"model": KNeighborsRegressor()}, "takes no sample weights"),
    "epsilon_fraction": ("bins", {"epsilon_fraction": 1.5}, {}, "above 0 and below 1"),
    "loss": ("bins", {"loss": "cubic"}, {}, "one of squared, absolute, poisson"),
    "network for plain noise": ("laplace", {}, {"model": "mlp"}, "choose ridge or trees"),
    "no such model": ("bins", {}, {"model": "logistic"}, "choose auto, ridge, trees"),
    "encoder": ("bins", {}, {"model": Ridge(), "encoder": Model(build("linear", (4,), 2), None)}, "cannot begin from"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_cost_nothing(case):
    name, options, more, message = BAD[case]
    opened = vault(LABELS, 1.0)
    with pytest.raises(ldp.InputError, match=message):
        train(opened, task(FEATURES, 1.0, **more), name, options)
    assert not opened.ledger.entries()


def test_a_fine_range_is_for_sums():
    space = ldp.LabelSpace.range(0, 100, 0.01)
    numeric_task = replace(task(FEATURES, 2.0), space=space)
    opened = vault(LABELS, 2.0, space=space)
    with pytest.raises(ldp.InputError, match="10,001 values and the search for bins takes 2,000"):
        train(opened, numeric_task, "bins")
    assert not opened.ledger.entries()
    trained = train(opened, numeric_task, "auto")
    assert [release.mechanism for release in trained.releases] == ["NumberSums"]
    assert error(trained.model) < TRUTH.var()


def test_images_are_learnt_by_a_network_that_may_begin_from_an_encoder(tmp_path):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 255, (200, 1, 8, 8)).astype(np.uint8)
    labels = pixels.mean(axis=(1, 2, 3)).round().clip(0, 255)
    space = ldp.LabelSpace.range(0, 255, 5)
    labels = np.rint(labels / 5) * 5
    images = Images(pixels, flip=False)
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    for name, start in {"none": None, "one": encoder, "two": concat_encoders([encoder, encoder], images)}.items():
        numeric_task = replace(task(images, 5.0, model="cnn", encoder=start), space=space)
        model = train(vault(labels, 5.0, space=space), numeric_task, "bins", score=False).model
        model.save(tmp_path / name)
        again = load_predictor(tmp_path / name, device="cpu")
        assert np.allclose(again.predict(images), model.predict(images), atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_user_pays_epsilon_for_all_of_their_labels(name, delta):
    users = np.repeat(np.arange(200), 3)
    opened = ldp.Vault(LABELS, SPACE, ldp.Budget(3.0, delta), users=users)
    opened._bits = Seeded(0)
    trained = train(opened, replace(task(FEATURES, 3.0, delta), row_mask=opened.cap_labels_per_user(2)), name)
    assert (trained.guarantee.unit, opened.guarantee().unit) == ("user", "user")
    assert opened.guarantee().epsilon <= 3.0
    assert opened.guarantee().delta <= delta
    assert trained.user_summary["labels_per_user"] == 2


@pytest.mark.parametrize("name", ["bins", "auto"])
def test_numbers_of_pairs_are_learnt_by_factors(name):
    rated = Ratings()
    space = ldp.LabelSpace.range(1, 5, 0.5)
    numeric_task = Task(rated.features, space, all_rows(4000), 6.0)
    model = train(vault(rated.labels, 6.0, space=space), numeric_task, name, score=False).model
    off = np.sqrt(((model.predict(rated.new) - rated.new_labels) ** 2).mean())
    assert off < 0.9 * rated.new_labels.std()
    opened = vault(rated.labels, 6.0, space=space)
    with pytest.raises(ldp.InputError, match="Ids cannot be added up"):
        train(opened, numeric_task, "sums", score=False)
    assert not opened.ledger.entries()


def wide_table(rows=4_000):
    """Numbers with a bent effect, a product of two columns, and a category."""
    generator = np.random.default_rng(3)
    x = generator.uniform(-1, 1, size=(rows, 3))
    kind = generator.choice(["a", "b"], rows)
    truth = np.sin(3 * x[:, 0]) + 2 * x[:, 1] * x[:, 2] + (kind == "b")
    labels = np.round(np.clip(truth + 0.3 * generator.normal(size=rows), -4, 4) * 10) / 10
    return Table.fit(pl.DataFrame({"x": x[:, 0], "y": x[:, 1], "z": x[:, 2], "kind": kind})), labels, truth


@pytest.mark.parametrize(
    ("epsilon", "asked", "model", "most"),
    [
        (1.0, ["NumberSums"], AdditiveNumberModel, 0.6),
        (4.0, ["NumberSums", "UnbiasedBins"], BoostedRegressionModel, 0.4),
    ],
)
def test_auto_fits_tables_with_rows_enough_by_sums_of_bins(epsilon, asked, model, most):
    table, labels, truth = wide_table()
    space = ldp.LabelSpace.range(-4, 4, 0.1)
    opened = ldp.Vault(labels, space, ldp.Budget(epsilon, 1e-6))
    opened._bits = Seeded(0)
    trained = train(opened, Task(table, space, all_rows(len(table)), epsilon, 1e-6), "auto")
    assert [release.mechanism for release in trained.releases] == asked
    assert type(trained.model) is model
    assert trained.n_candidates == 1
    assert max(trained.guarantee.epsilon, opened.guarantee().epsilon) <= epsilon
    assert np.mean((trained.model.predict(table) - truth) ** 2) < most * truth.var()
    assert set(trained.model.lineage) == {use for release in trained.releases for use in release.lineage}


def test_another_loss_is_learnt_from_evidence():
    table, labels, _ = wide_table()
    space = ldp.LabelSpace.range(-4, 4, 0.1)
    opened = ldp.Vault(labels, space, ldp.Budget(2.0, 1e-6))
    training = Training(epochs=1, device="cpu")
    task = Task(table, space, all_rows(len(table)), 2.0, 1e-6, training=training)
    trained = train(opened, task, "auto", {"loss": "absolute"})
    assert [release.mechanism for release in trained.releases] == ["NumberSums", "RROnBins", "NoisyMinLoss"]
    assert trained.n_candidates == 4


def test_trees_of_numbers_that_fail_leave_the_additive_model_and_a_note(monkeypatch):
    def fail(self, *given):
        raise IndexError

    monkeypatch.setattr(RegressionBoosting, "fit", fail)
    table, labels, _ = wide_table()
    space = ldp.LabelSpace.range(-4, 4, 0.1)
    opened = ldp.Vault(labels, space, ldp.Budget(4.0, 1e-6))
    trained = train(opened, Task(table, space, all_rows(len(table)), 4.0, 1e-6), "auto")
    assert type(trained.model) is AdditiveNumberModel
    assert trained.notes == ("A candidate was left out: boosted trees could not be trained (IndexError).",)
