import numpy as np
import pytest

import labeldp as ldp
from labeldp.recipes.base import RECIPES, find
from labeldp.recipes.pate import calibrated
from labeldp.recipes.run import train

find("pate-fm")
FAMILY = sorted(name for name in RECIPES if name.startswith("pate"))


@pytest.mark.parametrize("name", FAMILY)
def test_the_votes_stay_within_epsilon(digits, name):
    vault = digits.vault(3.0, 1e-5)
    trained = train(vault, digits.task(3.0, 1e-5, epochs=1), name, {"teachers": 40})
    assert 2.9 < trained.guarantee.epsilon <= 3.0
    assert (trained.guarantee.delta, trained.guarantee.unit) == (1e-5, "label")
    assert trained.score is not None
    assert vault.ledger.entries()[0].details["mechanism"] == "TeacherVotes"


@pytest.mark.parametrize("name", FAMILY)
def test_students_learn_what_the_teachers_tell(digits, name):
    """At an epsilon where votes are hardly noisy: so few rows make weak teachers, and 1,400 are few for 20 of them."""
    vault, task = digits.vault(100.0, 1e-5), digits.task(100.0, 1e-5, epochs=12)
    assert digits.accuracy(train(vault, task, name, {"teachers": 20}, score=False).model) > 0.8


@pytest.mark.parametrize("name", FAMILY)
def test_without_delta_it_is_refused_before_anything_is_spent(digits, name):
    vault = digits.vault(1.0)
    with pytest.raises(ldp.InputError, match="needs a delta above 0"):
        train(vault, digits.task(1.0), name)
    assert not vault.ledger.entries()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_calibrated_votes_meet_epsilon_and_hardly_less(epsilon):
    votes = calibrated(epsilon, 1e-5, 50.0, 600, 200)
    spent = votes.loss(600, 200).epsilon(1e-5)
    assert 0.99 * epsilon < spent <= epsilon


def test_rows_outside_the_task_have_no_teacher_and_no_query(digits):
    rows = np.arange(1400) < 900
    vault = digits.vault(2.0, 1e-5)
    train(vault, digits.task(2.0, 1e-5, rows=rows), "pate-fm", {"teachers": 40})
    assert vault.remaining(~rows)[0] == 2.0
