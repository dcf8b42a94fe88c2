from dataclasses import replace

import numpy as np
import pytest
from bound_vault import rows_of
from scripted import Seeded

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import Model, Supervised, Training
from labeldp.learn.backbones import build
from labeldp.mechanisms import GroupHistogram, OneHotLaplace
from labeldp.privacy.vault import Identity, Ledger
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.registry import RECIPES, Recipe, get_recipe
from labeldp.recipes.request import Request
from labeldp.recipes.task import Task
from labeldp.recipes.training import train, train_best

SOME = 400


@pytest.fixture
def enter(monkeypatch):
    """Puts a recipe into the list for one test."""

    def put(steps, **facts):
        get_recipe("randres")
        monkeypatch.setitem(RECIPES, "tried", Recipe("tried", "of this test", steps, **facts))

    return put


def by_part(vault, trained):
    """The rows that were trained on, chosen with and scored with, by the ledger."""
    parts = {name: np.zeros(vault.n_rows, bool) for name in ("train", "choose", "score")}
    training_entries = {release.entry for release in trained.releases}
    for entry in vault.ledger.entries():
        choice = entry.details["mechanism"] == "BestCandidate"
        parts["choose" if choice else "train" if entry.id in training_entries else "score"] |= rows_of(vault, entry)
    return parts


def test_rows_are_set_aside_for_choosing_and_scoring(digits):
    vault = digits.vault(50.0)
    trained = train(vault, digits.task(50.0), "auto")
    parts = by_part(vault, trained)
    assert trained.n_candidates > 1
    assert np.array_equal(np.sum(list(parts.values()), axis=0), np.ones(1400))
    assert [int(parts[name].sum()) for name in ("train", "choose", "score")] == [1120, 140, 140]
    assert trained.score.n_rows == 140


@pytest.mark.parametrize(
    ("name", "score", "aside"), [("randres", True, 140), ("randres", False, 0), ("auto", False, 0)]
)
def test_only_what_is_needed_is_set_aside(digits, name, score, aside):
    vault = digits.vault(0.5)
    trained = train(vault, digits.task(0.5), name, score=score)
    assert int(by_part(vault, trained)["train"].sum()) == 1400 - aside
    assert (trained.score is not None) == score


def test_a_user_is_trained_on_or_scored_with_but_never_both(digits):
    users = np.repeat(np.arange(350), 4)  # the guarantee is for labels: users only stay together here
    vault = digits.vault(1.0)
    trained = train(vault, digits.task(1.0, users=users), "randres")
    parts = by_part(vault, trained)
    assert parts["score"].sum() == 35  # one row of each
    assert not set(users[parts["train"]]) & set(users[parts["score"]])


def test_a_vault_of_users_with_a_row_each_is_trained_on_as_one_of_labels_is(digits):
    users = np.arange(SOME)[::-1].copy()
    vault = digits.vault(1.0, count=SOME, users=users)
    trained = train(vault, digits.task(1.0, count=SOME, users=users), "randres")
    assert (trained.guarantee.epsilon, trained.guarantee.unit) == (1.0, "user")
    parts = by_part(vault, trained)
    assert parts["score"].any()
    assert not (parts["train"] & parts["score"]).any()


def test_few_rows_are_all_trained_on_and_have_no_score(digits):
    vault = digits.vault(2.0, count=190)
    trained = train(vault, digits.task(2.0, count=190), "randres")
    assert trained.score is None
    assert by_part(vault, trained)["train"].all()
    assert train(digits.vault(2.0, count=210), digits.task(2.0, count=210), "randres").score is not None


def test_few_rows_choose_the_first_candidate(digits, monkeypatch):
    monkeypatch.setattr("labeldp.recipes.pipelines.auto._MIN_SIGNAL_TO_CHOOSE", 0.0)  # it would average its models
    trained = train(digits.vault(50.0, count=190), digits.task(50.0, count=190), "auto")
    assert trained.n_candidates > 1
    assert type(trained.model).__name__ == "LogLinearModel"


def test_the_score_is_honest(digits):
    errors = []
    for seed in range(12):
        trained = train(digits.vault(5.0, seed=seed), digits.task(5.0, seed=seed, epochs=3), "moments")
        estimate = trained.score.accuracy
        truth = digits.accuracy(trained.model)
        assert estimate.low <= estimate.value <= estimate.high
        errors.append(estimate.value - truth)
    assert abs(np.mean(errors)) < 0.03


def test_an_interrupted_run_goes_on_without_a_second_charge(digits, tmp_path, enter):
    attempts = []

    def steps(task):
        noisy = yield Request(ldp.RandomizedResponse(0.4))
        attempts.append(noisy)
        if len(attempts) == 1:
            raise KeyboardInterrupt
        counts = yield Request(GroupHistogram(np.zeros(SOME, int), 0.6), derived_from=[noisy])
        attempts.append(counts)
        return task.learner(Supervised).fit(task.features, noisy)

    enter(steps)

    def again(seed):
        vault = ldp.Vault(
            digits.labels[:SOME],
            digits.task(1.0).space,
            ldp.Budget(1.0),
            ledger=tmp_path / "ledger.db",
            identity=Identity("digits", "digit", SOME),
        )
        vault._bits = Seeded(seed)
        return vault

    with pytest.raises(KeyboardInterrupt):
        train(again(1), digits.task(1.0, count=SOME), "tried")
    vault = again(2)
    assert vault.guarantee().epsilon == 0.4
    trained = train(vault, digits.task(1.0, count=SOME), "tried")
    assert np.array_equal(attempts[0].labels(), attempts[1].labels())  # other noise would have given others
    assert attempts[0].entry == attempts[1].entry
    assert (trained.guarantee.epsilon, vault.guarantee().epsilon) == (1.0, 1.0)
    entries = len(vault.ledger.entries())
    more = train(again(3), digits.task(1.0, count=SOME), "tried")
    assert len(Ledger(tmp_path / "ledger.db").entries()) == entries
    assert more.score.accuracy == trained.score.accuracy


@pytest.mark.parametrize("name", ["lp-mst", "cluster-prior", "auto", "randres-denoise"])
def test_the_same_run_again_is_free_and_gives_the_same_model(digits, name):
    vault = digits.vault(3.0, count=SOME)
    one, two = (train(vault, digits.task(3.0, count=SOME), name) for _ in range(2))
    assert [r.entry for r in one.releases] == [r.entry for r in two.releases]
    assert np.array_equal(one.model.predict_proba(digits.new), two.model.predict_proba(digits.new))


def test_a_recipe_that_asks_for_a_row_twice_is_refused(digits, enter):
    def steps(task):
        noisy = yield Request(ldp.RandomizedResponse(task.epsilon))
        yield Request(OneHotLaplace(task.epsilon), np.arange(SOME) == 7, [noisy])

    enter(steps)
    vault = digits.vault(1.0, count=SOME)
    with pytest.raises(ldp.LabelDPError, match="requests more than the epsilon and delta of its task"):
        train(vault, digits.task(1.0, count=SOME), "tried", score=False)
    assert vault.guarantee().epsilon == 1.0


def test_a_recipe_that_overspends_is_refused_where_the_budget_would_allow_it(digits, enter):
    def steps(task):
        noisy = yield Request(ldp.RandomizedResponse(task.epsilon))
        more = yield Request(OneHotLaplace(task.epsilon), None, [noisy])
        return task.learner(Supervised).fit(task.features, ldp.Release.concat(noisy, more))

    enter(steps)
    vault = digits.vault(9.0, count=SOME)
    with pytest.raises(ldp.LabelDPError, match="'tried' requests more than the epsilon and delta of its task"):
        train(vault, digits.task(1.0, count=SOME), "tried")
    assert vault.guarantee().epsilon == 1.0  # before it was spent


def test_what_could_not_be_paid_to_the_end_is_not_begun_and_a_run_that_goes_on_is(digits):
    vault, task = digits.vault(0.5, count=SOME), digits.task(1.0, count=SOME)
    with pytest.raises(ldp.BudgetExceeded, match=r"costs epsilon 1 in all, and the budget has epsilon 0\.5"):
        train(vault, task, "cluster-prior")  # of which the first release costs 0.2
    assert not vault.ledger.entries()
    vault = digits.vault(1.0, count=SOME)
    first = train(vault, task, "cluster-prior", score=False)
    assert vault.remaining()[0] == 0
    again = train(vault, task, "cluster-prior", score=False)
    assert [release.entry for release in again.releases] == [release.entry for release in first.releases]


def test_an_encoder_of_other_rows_is_refused_before_anything_is_spent(digits):
    vault, encoder = digits.vault(1.0, count=SOME), Model(build("mlp", (5,), 1, width=4), None)
    with pytest.raises(ldp.InputError, match="takes rows of 5, and these are 64"):
        train(vault, replace(digits.task(1.0, count=SOME), encoder=encoder), "randres")
    assert not vault.ledger.entries()


def test_a_recipe_cannot_reach_rows_outside_the_task(digits, enter):
    releases = []

    def steps(task):
        noisy = yield Request(ldp.RandomizedResponse(task.epsilon), all_rows(SOME))
        releases.append(noisy)
        return task.learner(Supervised).fit(task.features, noisy)

    enter(steps)
    rows = np.arange(SOME) < 100
    train(digits.vault(1.0, count=SOME), digits.task(1.0, count=SOME, row_mask=rows), "tried")
    assert np.array_equal(releases[0].labels() >= 0, rows)


def test_several_models_are_chosen_from_privately(digits, enter):
    def steps(task):
        noisy = yield Request(ldp.RandomizedResponse(task.epsilon))
        good = task.learner(Supervised).fit(task.features, noisy)
        spoiled = noisy.relabel(np.where(noisy.labels() >= 0, 9 - noisy.labels(), -1))
        return [task.learner(Supervised).fit(task.features, spoiled), good]

    enter(steps, has_several_candidates=lambda task: task.epsilon >= 1.0)
    vault = digits.vault(3.0)
    trained = train(vault, digits.task(3.0, epochs=5), "tried")
    assert trained.n_candidates == 2
    assert digits.accuracy(trained.model) > 0.8
    used = [entry.details["mechanism"] for entry in vault.ledger.entries()]
    assert used[:2] == ["RandomizedResponse", "BestCandidate"]
    assert (trained.guarantee.epsilon, vault.guarantee().epsilon) == (3.0, 3.0)


@pytest.mark.parametrize(("by", "mechanism"), [("auto", "BestCandidate"), ("log-loss", "HighestScore")])
def test_a_task_says_by_what_models_are_chosen(digits, enter, by, mechanism):
    def steps(task):
        noisy = yield Request(ldp.RandomizedResponse(task.epsilon))
        good = task.learner(Supervised).fit(task.features, noisy)
        spoiled = noisy.relabel(np.where(noisy.labels() >= 0, 9 - noisy.labels(), -1))
        return [task.learner(Supervised).fit(task.features, spoiled), good]

    enter(steps, has_several_candidates=lambda task: True)
    vault = digits.vault(3.0)
    trained = train(vault, digits.task(3.0, epochs=5, choose_by=by), "tried")
    assert trained.best_index == 1
    assert [release.mechanism for release in trained.releases] == ["RandomizedResponse", mechanism]
    assert trained.to_json()["releases"][1].get("by") == (None if by == "auto" else by)
    assert vault.guarantee().epsilon == 3.0


def test_a_criterion_that_does_not_fit_is_refused_before_anything_is_spent(digits):
    vault = digits.vault(1.0)
    with pytest.raises(ldp.InputError, match="AUC is for two classes"):
        train(vault, digits.task(1.0, choose_by="auc"), "randres")
    with pytest.raises(ldp.InputError, match="the same choose_by"):
        train_best(vault, [digits.task(1.0), digits.task(1.0, choose_by="log-loss")], "randres", [{}, {}])
    assert not vault.ledger.entries()


def test_features_of_other_rows_are_refused_before_anything_is_spent(digits):
    vault = digits.vault(1.0)
    with pytest.raises(ldp.InputError, match="400 rows of features and 1400 labels"):
        train(vault, digits.task(1.0, count=SOME), "randres")
    assert not vault.ledger.entries()


def test_rows_without_a_label_are_left_out(digits):
    space = ldp.LabelSpace(list(range(10)), missing="public")
    labeled = np.arange(1400) % 3 > 0
    labels = [int(label) if known else None for label, known in zip(digits.labels, labeled, strict=True)]
    vault = ldp.Vault(labels, space, ldp.Budget(2.0))
    vault._bits = Seeded(0)
    trained = train(vault, replace(digits.task(2.0, epochs=8), space=space), "cluster-prior")
    assert digits.accuracy(trained.model) > 0.85
    assert trained.score.n_rows < 140
    assert not any((release.labels() >= 0)[~labeled].any() for release in trained.releases)


def test_the_phases_of_a_training_are_reported(digits):
    phases = []
    train(digits.vault(1.0, count=SOME), digits.task(1.0, count=SOME), "randres", report=phases.append)
    assert phases == ["rehearsing", "preparing", "releasing", "training", "scoring"]


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("randres", {"mixup": 0.0}),
        ("lp-mst", {"stages": 2, "temperature": 1.0}),
        ("cluster-prior", {"epsilon_fraction": 0.2}),
        ("alibi", {"noise": "laplace"}),
        ("noise-cluster", {"clusters": None}),
    ],
)
def test_an_option_at_its_default_changes_nothing(digits, name, same):
    one, two = (
        train(digits.vault(1.5, count=SOME), digits.task(1.5, count=SOME), name, options, score=False).model
        for options in ({}, same)
    )
    assert np.array_equal(one.predict_proba(digits.new), two.predict_proba(digits.new))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("randres", {"mixup": 1.0}),
        ("lp-mst", {"stages": 3}),
        ("lp-mst", {"first_fraction": 0.8}),
        ("cluster-prior", {"epsilon_fraction": 0.5}),
        ("noise-cluster", {"clusters": 12}),
        ("randres-denoise", {"clusters": 12}),
    ],
)
def test_an_option_at_another_value_changes_the_model(digits, name, other):
    one, two = (
        train(digits.vault(1.5, count=SOME), digits.task(1.5, count=SOME), name, options, score=False).model
        for options in ({}, other)
    )
    assert not np.array_equal(one.predict_proba(digits.new), two.predict_proba(digits.new))


def test_the_chosen_model_rests_on_the_choice_too(digits):
    trained = train(digits.vault(1.5, 1e-5), digits.task(1.5, 1e-5), "auto")
    assert {use.entry for use in trained.model.lineage} == {release.entry for release in trained.releases}
    assert (trained.model.guarantee.epsilon, trained.model.guarantee.delta) == (1.5, 1e-5)


def test_where_few_users_own_all_rows_none_is_set_aside(digits):
    task = digits.task(1.0, count=SOME, users=np.arange(SOME) % 2)
    assert train(digits.vault(1.0, count=SOME), task, "moments").score is None


@pytest.mark.parametrize(("positives", "has_warning"), [(0.01, True), (0.5, False)])
def test_a_model_that_predicts_one_class_only_has_a_warning(positives, has_warning):
    random, space = np.random.default_rng(0), ldp.LabelSpace([0, 1])
    codes = (random.random(2000) < positives).astype(int)
    features = Embeddings((random.normal(size=(2000, 3)) + 2 * codes[:, None]).astype(np.float32))
    vault, task = ldp.Vault(codes, space, ldp.Budget(2.0)), Task(features, space, all_rows(2000), 2.0)
    vault._bits = Seeded(0)
    warnings = train(vault, task, "moments").to_json()["warnings"]
    assert ["predicts one class" in warning for warning in warnings] == [True] * has_warning


def test_an_encoder_that_learnt_from_labels_is_refused_before_anything_is_spent(digits):
    """What it learnt would go unstated: its cost is no part of this training's."""
    trained_model = train(digits.vault(1.0), digits.task(1.0), "randres", score=False).model
    vault = digits.vault(1.0)
    with pytest.raises(ldp.InputError, match="This encoder was trained with labels"):
        train(vault, replace(digits.task(1.0), encoder=trained_model), "randres")
    assert not vault.ledger.entries()


def test_checkpoints_of_a_recipe_go_into_a_folder(digits, tmp_path):
    training = Training(epochs=1, device="cpu", checkpoint=tmp_path / "file.pt")
    vault, task = digits.vault(1.0), digits.task(1.0, training=training)
    with pytest.raises(ldp.InputError, match="make a folder for their checkpoints"):
        train(vault, task, "randres")
    assert not vault.ledger.entries()


def test_what_is_stated_of_every_label_counts_held_out_ones(digits):
    trained = train(digits.vault(2.0, 1e-5), digits.task(2.0, 1e-5), "pate-fm", {"teachers": 20})
    assert trained.guarantee.epsilon < trained.score.epsilon == trained.overall_guarantee.epsilon
    assert replace(trained.overall_guarantee, epsilon=trained.guarantee.epsilon) == trained.guarantee


def test_of_one_row_nothing_is_learnt():
    vault = ldp.Vault([0], ldp.LabelSpace([0, 1]), ldp.Budget(1.0))
    one = Task(Embeddings(np.zeros((1, 2))), vault.space, all_rows(1), 1.0)
    with pytest.raises(ldp.InputError, match="There is one row, and nothing to learn from it"):
        train(vault, one, "randres")
    assert not vault.ledger.entries()


def test_a_choice_is_made_where_the_rows_that_are_left_give_several_models(digits, enter):
    """Before any is set aside there are 1,400 rows, and one model would do; to train on there are 1,120."""

    def few(task):
        return int(task.row_mask.sum()) < 1_200

    def steps(task):
        noisy = yield Request(ldp.RandomizedResponse(task.epsilon))
        models = [Supervised(training=Training(epochs=1)).fit(task.features, noisy) for _ in range(1 + few(task))]
        return models

    enter(steps, has_several_candidates=few)
    trained = train(digits.vault(1.0), digits.task(1.0), "tried")
    assert trained.n_candidates == 2
    assert [release.mechanism for release in trained.releases] == ["RandomizedResponse", "BestCandidate"]
    enter(steps, has_several_candidates=lambda task: int(task.row_mask.sum()) < 1_100)
    alone = train(digits.vault(1.0), digits.task(1.0), "tried", score=False)
    assert alone.releases[0].row_mask is None  # nothing was set aside


def test_encoded_features_are_shared_by_tasks_on_other_rows(digits):
    task = digits.task(1.0)
    points = task.encoded_features
    rows = np.arange(1400) < 700
    assert task.with_rows(rows).encoded_features is points
    assert task.with_rows(rows).row_mask is rows


def test_an_epsilon_without_a_half_costs_nothing(digits):
    vault = digits.vault(1.0)
    with pytest.raises(ldp.InputError, match="epsilon must be at least 2e-09"):
        train(vault, digits.task(1e-9), "randres")
    assert vault.ledger.entries() == []
