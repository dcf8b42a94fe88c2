from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
import torch
from scripted import Seeded
from sklearn.metrics import roc_auc_score

import labeldp as ldp
from labeldp.data import Images, Table
from labeldp.learn import Model, Training
from labeldp.learn.additive.log_linear import LogLinearModel
from labeldp.learn.additive.model import AdditiveModel
from labeldp.learn.average import AveragedModel
from labeldp.learn.backbones import build
from labeldp.learn.boosting import BoostedModel
from labeldp.mechanisms import LinearQuery
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.pipelines.additive import additive_steps, choose_layout
from labeldp.recipes.pipelines.auto import auto, has_several_candidates, smooth_pseudo_labels, split_counts_epsilon
from labeldp.recipes.task import Task
from labeldp.recipes.training import train
from labeldp.representation.clusters import nearest_neighbors


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
    training = Training(epochs=3, batch_size=128, learning_rate=0.1, device="cpu")
    return vault, Task(table, space, all_rows(3000), epsilon, delta, training=training)


@pytest.mark.parametrize(
    ("epsilon", "delta", "recipe", "kind"),
    [
        (0.05, 0.0, "log-linear", LogLinearModel),
        (0.5, 0.0, "log-linear", LogLinearModel),
        (0.7, 0.0, "additive", AdditiveModel),
        (1.3, 0.0, "additive", AdditiveModel),
        (0.2, 1e-6, "log-linear", LogLinearModel),
        (0.4, 1e-6, "additive", AdditiveModel),
        (1.0, 1e-6, "additive", AdditiveModel),
    ],
)
def test_the_noise_decides_between_counts_of_bins_and_sums_of_rows(people, epsilon, delta, recipe, kind):
    one, two = (train(*on_people(people, epsilon, delta), name) for name in ("auto", recipe))
    assert one.n_candidates == 1
    assert [r.mechanism for r in one.releases] == ["LinearQuery"]
    assert type(one.model) is kind
    assert np.array_equal(one.model.predict_proba(people[0]), two.model.predict_proba(people[0]))


def test_of_few_rows_whose_sums_noise_would_drown_clusters_vote(digits):
    trained = train(digits.vault(0.5), digits.task(0.5), "auto")
    assert [r.mechanism for r in trained.releases] == ["GroupHistogram"]


def test_with_delta_sums_of_smoothed_rows_are_used_where_plain_sums_are_too_noisy(digits):
    one, two = (train(digits.vault(0.1, 1e-5), digits.task(0.1, 1e-5), name) for name in ("auto", "smooth-moments"))
    assert one.n_candidates == 1
    for ours, theirs in zip(one.releases, two.releases, strict=True):
        assert np.array_equal(ours.moments, theirs.moments)


@pytest.fixture
def enough_to_choose(monkeypatch):
    """As if there were rows enough for a private choice among models."""
    monkeypatch.setattr("labeldp.recipes.pipelines.auto._MIN_SIGNAL_TO_CHOOSE", 0.0)


def test_of_few_rows_near_ones_help_and_both_models_are_averaged(digits):
    task = digits.task(1.4, 1e-5, epochs=10)
    assert not has_several_candidates(task)
    trained = train(digits.vault(1.4, 1e-5), task, "auto")
    assert trained.n_candidates == 1
    assert [r.mechanism for r in trained.releases] == ["LinearQuery"]
    assert type(trained.model) is AveragedModel
    log_linear, network = trained.model.members
    assert type(log_linear) is LogLinearModel
    assert type(network) is Model
    assert trained.guarantee.epsilon <= 1.4


@pytest.mark.usefixtures("enough_to_choose")
def test_with_more_rows_a_private_choice_decides(digits):
    trained = train(digits.vault(1.4, 1e-5), digits.task(1.4, 1e-5, epochs=10), "auto")
    assert trained.n_candidates == 2
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", "BestCandidate"]


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_rows_times_epsilon_of_a_class_decide_between_an_average_and_a_choice(epsilon):
    """A class of 2,000 rows at epsilon 1 is as good as one of 1,000 at 2."""
    below, above = (table_task(int(25 * each / epsilon), epsilon, classes=25) for each in (1_990, 2_010))
    assert not has_several_candidates(below)
    assert has_several_candidates(above)
    for rows in (1_000, 100_000):  # tables of few classes have trees, which are better averaged
        assert not has_several_candidates(table_task(rows, epsilon, classes=20, columns=250))


def test_of_few_rows_the_average_of_models_is_better_than_one_alone(digits):
    """Means over draws of the noise. The networks and the linear model make different errors."""
    found = []
    for seed in range(3):
        task = digits.task(1.4, 1e-5, seed, epochs=10)
        model = train(digits.vault(1.4, 1e-5, seed), task, "auto", score=False, with_rehearsal=False).model
        found.append([digits.accuracy(each) for each in (model, *model.members)])
    together, *alone = np.mean(found, axis=0)
    assert together > min(alone) + 0.01
    assert together > max(alone) - 0.01


def test_smoothing_over_neighbours_corrects_labels(digits):
    task = digits.task(0.5, 1e-5)
    sums = digits.vault(0.5, 1e-5).release(LinearQuery(task.normalized, 0.5, 1e-5))
    before, after = (
        np.mean(r.labels() == digits.labels)
        for r in (sums, smooth_pseudo_labels(task, sums, nearest_neighbors(task.normalized, 10)))
    )
    assert after > before + 0.02


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_from_a_moderate_epsilon_boosted_trees_learn_from_noisy_labels(people, delta):
    vault, task = on_people(people, 4.0, delta)
    trained = train(vault, task, "auto")
    assert trained.n_candidates == 1
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", "RandomizedResponse"]
    assert type(trained.model) is BoostedModel
    assert type(trained.model.start) is AdditiveModel
    assert trained.model.start_weight == 0.5  # of few rows, the mean of trees with the start and without
    counts, responses = trained.releases
    assert (counts.parameters["epsilon"], responses.parameters["epsilon"]) == pytest.approx((0.8, 3.2))
    everything = {use for release in trained.releases for use in release.lineage}
    assert set(trained.model.start.lineage) == set(trained.model.lineage) == everything  # the start is fitted to both
    assert (trained.guarantee.epsilon, trained.guarantee.delta) == (pytest.approx(4.0, rel=1e-12), delta)
    assert max(trained.guarantee.epsilon, vault.guarantee().epsilon) <= 4.0
    assert trained.notes == ()


def test_the_additive_model_is_fitted_to_sums_and_labels(people, monkeypatch):
    monkeypatch.setattr("labeldp.recipes.pipelines.auto._MAX_ROWS_AVERAGED", 0)
    vault, task = on_people(people, 2.0, 1e-6)
    trained = train(vault, task, "auto", with_rehearsal=False, score=False)
    counts, responses = trained.releases
    assert (counts.parameters["epsilon"], responses.parameters["epsilon"]) == pytest.approx((0.5, 1.5))
    table, _ = people
    steps = additive_steps(task, choose_layout(task, 0.5), 0.5, 1e-6)
    next(steps)
    with pytest.raises(StopIteration) as done:
        steps.send(counts)
    alone, sums = done.value.value
    both = trained.model.start
    assert np.array_equal(both.scores(table), sums.fit(responses).scores(table))
    assert not np.allclose(both.scores(table), alone.scores(table), atol=0.1)
    assert trained.model.start_weight == 1.0  # as of many rows


def test_selected_crosses_and_noisy_labels_share_epsilon(people, monkeypatch):
    monkeypatch.setattr("labeldp.recipes.budget_split._MIN_SNR_FOR_CROSSES", 100.0)
    vault, task = on_people(people, 4.0, 1e-6)
    trained = train(vault, task, "auto")
    crosses = ["LargestResiduals", "LinearQuery"] * 3  # of three columns
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", *crosses, "RandomizedResponse"]
    assert len(trained.model.start.terms) == 6
    everything = {use for release in trained.releases for use in release.lineage}
    assert set(trained.model.start.lineage) == set(trained.model.lineage) == everything
    assert trained.guarantee.epsilon == pytest.approx(4.0, rel=1e-3)
    assert max(trained.guarantee.epsilon, vault.guarantee().epsilon) <= 4.0


def test_what_is_not_linear_is_learnt_by_trees(people):
    """A constant model is right for 0.67 of the rows, and a linear one hardly oftener."""
    vault, task = on_people(people, 4.0, 1e-6)
    trained = train(vault, task, "auto")
    table, labels = people
    assert (trained.model.predict(table) == labels).mean() > 0.8
    assert trained.score.accuracy.value > 0.75


def test_trees_that_fail_leave_the_additive_model_and_a_note(people, monkeypatch):
    def fail(self, *given):
        raise IndexError

    monkeypatch.setattr("labeldp.learn.boosting.Boosting.fit_averaged", fail)
    trained = train(*on_people(people, 4.0), "auto")
    assert type(trained.model) is AdditiveModel
    assert set(trained.model.lineage) == {use for release in trained.releases for use in release.lineage}
    assert trained.notes == ("A candidate was left out: boosted trees could not be trained (IndexError).",)


def wide_task(columns, classes):
    generator = np.random.default_rng(0)
    rows, codes = generator.normal(size=(600, columns)), np.arange(600) % classes
    table, space = Table.fit(pl.DataFrame(rows)), ldp.LabelSpace(list(range(classes)))
    task = Task(table, space, all_rows(600), 4.0, 1e-6, training=Training(epochs=1, device="cpu"))
    return ldp.Vault(codes, space, ldp.Budget(4.0, 1e-6)), task


WIDE = pytest.mark.parametrize(
    ("columns", "classes", "labels", "further"),
    [
        (250, 2, "RandomizedResponse", ["LogLinearModel", "BoostedModel", "Model"]),
        (5, 30, "RRWithPrior", ["LogLinearModel", "Model"]),  # without boosted trees where classes are many
    ],
)


@WIDE
def test_wide_tables_and_many_classes_are_not_cut_into_bins(columns, classes, labels, further):
    vault, task = wide_task(columns, classes)
    trained = train(vault, task, "auto", score=False)
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", labels]
    assert trained.n_candidates == 1
    assert [type(each).__name__ for each in trained.model.members] == further
    assert trained.guarantee.epsilon <= 4.0
    if columns > 200:
        with pytest.raises(ldp.InputError, match="Crosses are for tables of at most 200 columns"):
            next(auto(task, cross="column_0,column_1"))


@WIDE
@pytest.mark.usefixtures("enough_to_choose")
def test_with_rows_enough_a_private_choice_decides_only_where_no_trees_are_among_them(
    columns, classes, labels, further
):
    vault, task = wide_task(columns, classes)
    trained = train(vault, task, "auto", score=False)
    assert [r.mechanism for r in trained.releases][:2] == ["LinearQuery", labels]
    if "BoostedModel" in further:
        assert [type(each).__name__ for each in trained.model.members] == further
    else:
        assert trained.n_candidates == 1 + len(further)  # with the model of the sums


def test_embeddings_have_a_log_linear_model_and_networks(digits):
    trained = train(digits.vault(50.0), digits.task(50.0), "auto")
    assert trained.n_candidates == 4  # log-linear of sums and of labels, a network of neighbours, one of both releases
    assert [r.mechanism for r in trained.releases] == ["LinearQuery", "RandomizedResponse", "BestCandidate"]


@pytest.mark.usefixtures("enough_to_choose")
def test_without_torch_no_network_is_a_candidate(digits, monkeypatch):
    few, drowned = digits.task(1.0, 1e-5), digits.task(0.05, 1e-5)
    assert has_several_candidates(few)  # a network of neighbours beside the linear model
    monkeypatch.setattr("labeldp.core.lazy.find_spec", lambda name: None)
    assert not has_several_candidates(few)
    trained = train(digits.vault(50.0), digits.task(50.0), "auto")
    assert trained.n_candidates == 2  # log-linear of sums and of labels
    assert type(trained.model) is LogLinearModel
    assert trained.notes == ()
    model = train(digits.vault(0.05, 1e-5), drowned, "auto", score=False).model
    assert type(model.classifier).__name__ == "LogisticRegression"


def table_task(rows, epsilon, delta=1e-6, classes=2, columns=4):
    table = Table.fit(pl.DataFrame(np.random.default_rng(0).normal(size=(100, columns))))
    return Task(
        table.select(np.arange(rows) % 100), ldp.LabelSpace(list(range(classes))), all_rows(rows), epsilon, delta
    )


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rows", [100, 200_000])
@pytest.mark.parametrize(
    ("epsilon", "first"),
    [(0.3, 0.3), (1 / 3, 1 / 3), (1.0, 1.0), (1.49, 1.49), (1.5, 0.375), (2.9, 0.725), (3.0, 0.6), (10.0, 2.0)],
)
def test_epsilon_alone_decides_what_sums_and_noisy_labels_get(rows, delta, epsilon, first):
    found = split_counts_epsilon(table_task(rows, epsilon, delta))
    assert found == (pytest.approx(first), pytest.approx(epsilon - first, abs=1e-9))
    assert sum(map(Fraction, map(repr, found))) <= Fraction(repr(epsilon))
    assert split_counts_epsilon(table_task(rows, epsilon, delta, classes=20))[0] == found[0]
    assert split_counts_epsilon(table_task(rows, epsilon, delta, classes=21)) == (epsilon, 0.0)


def test_users_with_several_labels_divide_what_a_label_may_spend():
    task = replace(table_task(600, 4.0), users=np.arange(600) // 2)
    assert split_counts_epsilon(task) == (1.0, 3.0)  # 2 for a label: a quarter of it
    assert split_counts_epsilon(replace(task, epsilon=2.9)) == (2.9, 0.0)


def test_it_beats_randomized_response_at_a_low_epsilon(digits):
    for epsilon, delta, margin in ((0.5, 0.0, 0.25), (1.0, 1e-5, 0.5)):
        plain = digits.mean_accuracy("randres", epsilon, targets="labels")
        assert digits.mean_accuracy("auto", epsilon, delta) > plain + margin


@pytest.mark.parametrize(("epsilon", "min_auc"), [(1.0, 0.9), (4.0, 0.92)])  # the labels themselves give 0.95
def test_rare_classes_are_ranked(epsilon, min_auc):
    """Means over draws of the noise, which hides 200 positives among 20,000 rows."""
    random, space, found = np.random.default_rng(0), ldp.LabelSpace([0, 1]), []
    codes = (random.random(20_000) < 0.01).astype(int)
    features = Table.fit(pl.DataFrame(random.normal(size=(20_000, 10)) + 0.7 * codes[:, None]))
    for seed in range(2):
        vault = ldp.Vault(codes, space, ldp.Budget(epsilon, 1e-6))
        vault._bits = Seeded(seed)
        task = Task(features, space, all_rows(20_000), epsilon, 1e-6)
        trained = train(vault, task, "auto", score=False, with_rehearsal=False)
        assert trained.guarantee.epsilon <= epsilon
        assert trained.guarantee.delta <= 1e-6
        probabilities = trained.model.predict_proba(features)[:, 1]
        found.append([roc_auc_score(codes, probabilities), probabilities.mean() / codes.mean()])
    auc, calibration = np.mean(found, axis=0)
    assert auc > min_auc
    assert calibration == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize(("min_rows_per_class", "refined"), [(20, True), (21, False)])
def test_pictures_with_an_encoder_are_refined_if_there_are_many(digits, monkeypatch, min_rows_per_class, refined):
    monkeypatch.setattr("labeldp.recipes.pipelines.auto._MIN_ROWS_PER_CLASS", min_rows_per_class)
    monkeypatch.setattr("labeldp.recipes.pipelines.auto._MIN_SIGNAL_TO_CHOOSE", 0.0)
    monkeypatch.setattr("labeldp.recipes.pipelines.auto.refine", lambda task: iter(["refined"]))
    pixels = (digits.features.batch(torch.arange(200)) * 254).byte().reshape(-1, 1, 8, 8)
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    task = replace(digits.task(1.0, 1e-5, count=200), features=Images(pixels, flip=False), encoder=encoder)
    assert (next(auto(task)) == "refined") == refined
    assert has_several_candidates(task) != refined
