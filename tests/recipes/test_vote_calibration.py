import pytest

from labeldp.recipes.vote_calibration import (
    MIN_TEACHERS,
    calibrate_confident_votes,
    calibrate_stable_votes,
    count_confident_teachers,
    count_stable_teachers,
    max_teachers,
    min_unanimous_teachers,
)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_confident_votes_meet_epsilon_and_hardly_less(epsilon):
    spent = calibrate_confident_votes(epsilon, 1e-5, 600, 200).loss(600, 200).epsilon(1e-5)
    assert 0.99 * epsilon < spent <= epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_lead_of_the_teachers_exceeds_the_noise_unless_their_number_is_limited(epsilon):
    votes = calibrate_confident_votes(epsilon, 1e-5, 600, 200)
    assert count_confident_teachers(votes, 10**9) >= 8 * votes.sigma2 - 1
    assert count_confident_teachers(votes, 12) == 12


def test_half_of_the_teachers_for_stable_votes_are_enough_if_they_agree():
    votes = calibrate_stable_votes(2.0, 1e-5, 600)
    assert count_stable_teachers(votes, 10**9) == 2 * min_unanimous_teachers(votes)
    assert count_stable_teachers(votes, 12) == 12


@pytest.mark.parametrize(
    ("rows", "classes", "limit"), [(50_000, 10, 2500), (50, 10, MIN_TEACHERS), (0, 2, MIN_TEACHERS), (1000, 2, 250)]
)
def test_every_teacher_has_two_rows_of_a_class(rows, classes, limit):
    assert max_teachers(rows, classes) == limit
