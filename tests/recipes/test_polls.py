import pytest

from labeldp.recipes.polls import (
    FEW,
    agreed_by_all,
    confident_teachers,
    confident_votes,
    most_teachers,
    stable_teachers,
    stable_votes,
)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_confident_votes_meet_epsilon_and_hardly_less(epsilon):
    spent = confident_votes(epsilon, 1e-5, 600, 200).loss(600, 200).epsilon(1e-5)
    assert 0.99 * epsilon < spent <= epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_teachers_are_heard_above_the_noise_unless_there_cannot_be_so_many(epsilon):
    votes = confident_votes(epsilon, 1e-5, 600, 200)
    assert confident_teachers(votes, 10**9) >= 8 * votes.sigma2 - 1
    assert confident_teachers(votes, 12) == 12


def test_half_of_the_teachers_for_stable_votes_are_enough_if_they_agree():
    votes = stable_votes(2.0, 1e-5, 600)
    assert stable_teachers(votes, 10**9) == 2 * agreed_by_all(votes)
    assert stable_teachers(votes, 12) == 12


@pytest.mark.parametrize(("rows", "classes", "most"), [(50_000, 10, 2500), (50, 10, FEW), (0, 2, FEW), (1000, 2, 250)])
def test_every_teacher_has_two_rows_of_a_class(rows, classes, most):
    assert most_teachers(rows, classes) == most
