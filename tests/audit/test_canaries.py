import numpy as np
import pytest
from scipy.stats import binom

import labeldp as ldp
from labeldp.audit.canaries import (
    CONFIDENT_VIEW,
    measure_canary_game,
    plant_canaries,
    select_training_rows,
    train_and_score,
)
from labeldp.audit.one_run import one_run
from labeldp.privacy.noise.secure_stream import SYSTEM

SURE = 1 - 1e-6


def fresh():
    return np.random.default_rng(SYSTEM.uint64(2))


def test_canaries_get_one_of_two_wrong_labels_by_a_fair_coin():
    codes = np.arange(20_000) % 5
    game = plant_canaries(codes, np.ones(codes.size, bool), 5, fresh(), 10_000)
    true = codes[game.row_ids]
    assert (game.options != true[:, None]).all()
    assert (game.options[:, 0] != game.options[:, 1]).all()
    assert (game.codes[game.row_ids] == game.options[np.arange(10_000), game.coins]).all()
    others = np.setdiff1d(np.arange(codes.size), game.row_ids)
    assert (game.codes[others] == codes[others]).all()
    low, high = binom.ppf([1e-9, 1 - 1e-9], 10_000, 0.5)
    assert low < game.coins.sum() < high
    # All ordered pairs of wrong labels are alike, so neither place tells which label was used.
    pairs, counts = np.unique((game.options - true[:, None]) % 5, axis=0, return_counts=True)
    assert len(pairs) == 12
    assert counts.min() > binom.ppf(1e-9, 10_000, 1 / 12)


def test_with_two_classes_the_coin_is_the_label():
    codes = np.zeros(100, np.int64)
    game = plant_canaries(codes, np.ones(100, bool), 2, fresh())
    assert game.row_ids.size == 20
    assert (game.codes[game.row_ids] == game.coins).all()


def test_canaries_are_rows_that_are_trained_on(digits):
    task = digits.task(50.0, count=600)
    trained = select_training_rows(task, "auto")
    assert 0 < trained.sum() < 600  # it sets rows aside to choose with
    game = plant_canaries(digits.labels[:600], trained, 10, fresh())
    assert trained[game.row_ids].all()
    assert select_training_rows(task, "randres").all()
    with pytest.raises(ldp.InputError, match="601 canaries are not between 8 and the 600 rows"):
        plant_canaries(digits.labels[:600], np.ones(600, bool), 10, fresh(), 601)


def lower(digits, epsilon, recipe="randres", **more):
    task = digits.task(epsilon, **more)
    game = plant_canaries(digits.labels, select_training_rows(task, recipe), 10, fresh(), 1_400)
    canary_scores = train_and_score(game, task, recipe)
    return one_run(canary_scores.scores, game.coins, task.delta, SURE), measure_canary_game(
        canary_scores.scores[CONFIDENT_VIEW], canary_scores.model_confidence, game.coins, SURE
    )


def test_one_training_separates_no_privacy_from_epsilon_4_and_1(digits):
    (none, none_game), (four, four_game), (one, one_game) = (lower(digits, epsilon) for epsilon in (60.0, 4.0, 1.0))
    assert one.lower <= 1 < four.lower <= 4 < none.lower
    assert one_game.lower <= 1 < four_game.lower <= 4
    assert none_game.lower > 3.5
    assert none_game.upper == np.inf
    assert none_game.to_json()["attack_interval"][1] is None
    assert four.views["model"] > 1  # a network memorizes canaries, so that the model alone reveals them


def test_votes_of_teachers_reveal_little_about_canaries(digits):
    found, game = lower(digits, 4.0, "pate-fm", delta=1e-6, epochs=2)
    assert set(found.views) == {"model", CONFIDENT_VIEW}
    assert found.lower < 0.5
    assert game.lower < 0.5


def test_reference_probabilities_change_the_score_of_the_model(digits):
    task = digits.task(4.0, count=400, epochs=1)
    game = plant_canaries(digits.labels[:400], np.ones(400, bool), 10, fresh(), 100)
    probabilities = np.random.default_rng(0).dirichlet(np.ones(10), 400)
    plain = train_and_score(game, task, "randres")
    with_reference = train_and_score(game, task, "randres", reference_probabilities=probabilities)
    assert plain.model_confidence.shape == with_reference.model_confidence.shape == (100,)
    assert not np.allclose(plain.scores["model"], with_reference.scores["model"])
    assert plain.evidence.shape == (400, 10)


def test_the_threshold_comes_from_one_half_and_the_rate_from_the_other():
    coins = np.ones(400, np.int64)
    scores, model_confidence = np.ones(400), np.linspace(1, 0, 400)
    scores[200:] = np.where(np.arange(200) // 2 % 2, 1, -1)  # the sure half is right, the rest a coin toss
    game = measure_canary_game(scores, model_confidence, coins)
    assert game.guesses == game.correct >= 99
    assert game.threshold == pytest.approx(0.5, abs=0.01)
    assert game.rate == 1
    scores[1::2] = -1  # the other half contradicts: only what it says counts
    assert measure_canary_game(scores, model_confidence, coins).lower == 0


def test_without_guesses_the_interval_is_unbounded():
    coins = np.ones(8)
    game = measure_canary_game(np.ones(8), np.array([1.0, 0, 1, 0, 1, 0, 1, 0]), coins)
    assert (game.lower, game.upper, game.rate) == (0.0, np.inf, None)
    with pytest.raises(ldp.InputError, match="at least 8 canaries"):
        measure_canary_game([1.0], [1.0], [1])


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_lower_end_fails_no_more_often_than_stated(epsilon):
    """Answers of randomized response, with a confidence that depends on all answers; many games."""
    generator, games, confidence = np.random.default_rng(5), 1000, 0.8
    keep = np.exp(epsilon) / (1 + np.exp(epsilon))
    wrong = 0
    for _ in range(games):
        coins = generator.integers(0, 2, 40)
        answers = np.where(generator.random(40) < keep, coins, 1 - coins)
        model_confidence = np.round(np.roll(answers, 1) + 2 * answers.mean() * generator.random(40), 1)
        wrong += measure_canary_game(2 * answers - 1, model_confidence, coins, confidence).lower > epsilon
    assert wrong <= binom.ppf(1 - 1e-6, games, (1 - confidence) / 2)


def test_one_coin_decides_all_labels_of_a_user(digits):
    users = np.arange(600) // 4
    eligible = np.arange(600) % 4 < 3  # three rows of each
    codes = digits.labels[:600]
    game = plant_canaries(codes, eligible, 10, np.random.default_rng(0), users=users)
    assert game.coins.size == 30  # a fifth of the users
    assert game.row_ids.size == 90
    assert eligible[game.row_ids].all()
    for canary in range(30):
        own = game.canary_ids == canary
        assert len(set(users[game.row_ids[own]])) == 1
        assert own.sum() == 3
        chosen = game.options[own, game.coins[canary]]
        assert np.array_equal(game.codes[game.row_ids[own]], chosen)
    assert (game.options != codes[game.row_ids, None]).all()
    untouched = np.setdiff1d(np.arange(600), game.row_ids)
    assert np.array_equal(game.codes[untouched], codes[untouched])


def test_users_are_guessed_by_all_of_their_labels(digits):
    users = np.arange(600) // 4
    task = digits.task(400.0, count=600, epochs=1, users=users)
    game = plant_canaries(digits.labels[:600], np.ones(600, bool), 10, np.random.default_rng(0), users=users)
    canary_scores = train_and_score(game, task, "randres")
    assert canary_scores.scores["releases"].shape == game.coins.shape
    assert ((canary_scores.scores["releases"] > 0) == game.coins.astype(bool)).all()


def test_too_few_users_for_canaries(digits):
    with pytest.raises(ldp.InputError, match="the 5 users that are trained on"):
        plant_canaries(
            digits.labels[:600], np.ones(600, bool), 10, np.random.default_rng(0), 8, users=np.arange(600) % 5
        )


def test_the_bound_is_on_all_labels_of_a_user_together(digits):
    """Each label has epsilon 2 for itself, and four of them reveal more than any one could."""
    users = np.arange(1796) // 4
    task = digits.task(8.0, count=1796, epochs=1, users=users, model="linear")
    game = plant_canaries(digits.labels[:1796], np.ones(1796, bool), 10, np.random.default_rng(0), 400, users=users)
    canary_scores = train_and_score(game, task, "randres")
    lower = one_run({"releases": canary_scores.scores["releases"]}, game.coins).lower
    assert 2.0 < lower <= 8.0
