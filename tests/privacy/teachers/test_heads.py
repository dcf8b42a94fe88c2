import numpy as np
import pytest
from sklearn.linear_model import Ridge

import labeldp as ldp
from labeldp.privacy.teachers.heads import Heads
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.teacher_data import TeacherData

GENERATOR = np.random.default_rng(0)
POINTS = GENERATOR.normal(size=(300, 12)).astype(np.float32)
CODES = GENERATOR.integers(0, 4, 300)


@pytest.mark.parametrize("teachers", [3, 60])  # more rows than columns in a part, and fewer
def test_each_head_is_ridge_regression_on_its_own_rows(teachers):
    teacher = assign_teachers(np.ones(300, bool), teachers, 0)
    weights = Heads(0.5).fit(POINTS, CODES, teacher, 4)
    for number in range(teachers):
        own = teacher == number
        slow = Ridge(alpha=0.5, fit_intercept=False).fit(POINTS[own].astype(float), np.eye(4)[CODES[own]])
        assert np.allclose(weights[number], slow.coef_.T, atol=1e-4)


@pytest.mark.parametrize("teachers", [3, 60])
def test_one_label_leaves_every_other_teacher_as_it_was_to_the_last_bit(teachers):
    teacher = assign_teachers(np.ones(300, bool), teachers, 0)
    before = Heads().fit(POINTS, CODES, teacher, 4)
    for row in (0, 17, 299):
        changed = CODES.copy()
        changed[row] = (changed[row] + 1) % 4
        after = Heads().fit(POINTS, changed, teacher, 4)
        others = np.arange(teachers) != teacher[row]
        assert np.array_equal(before[others], after[others])
        assert not np.array_equal(before[~others], after[~others])


def test_votes_are_counted_by_winner():
    weights = Heads().fit(POINTS, CODES, assign_teachers(np.ones(300, bool), 20, 0), 4)
    counts = Heads.vote(weights, POINTS[:50])
    slow = np.zeros((50, 4), int)
    for query in range(50):
        for head in weights:
            slow[query, np.argmax(POINTS[query] @ head)] += 1
    assert np.array_equal(counts, slow)
    assert (counts.sum(axis=1) == 20).all()


def test_rows_without_label_or_teacher_teach_nothing():
    teacher = assign_teachers(np.arange(300) < 200, 5, 0)
    hidden = np.where(np.arange(300) % 7 == 0, -1, CODES)
    weights = Heads().fit(POINTS, hidden, teacher, 4)
    elsewhere = np.where((teacher < 0) | (hidden < 0), (CODES + 1) % 4, CODES)
    elsewhere[hidden < 0] = -1
    assert np.array_equal(weights, Heads().fit(POINTS, elsewhere, teacher, 4))


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan"), float("inf")])
def test_without_a_penalty_a_fit_might_fail_by_what_a_row_holds(penalty):
    with pytest.raises(ldp.InputError, match="finite number above 0"):
        Heads(penalty).check(POINTS, POINTS, ldp.LabelSpace([0, 1]), False)


@pytest.mark.filterwarnings("error")
def test_no_warning_tells_what_a_secret_row_holds():
    points, codes = np.ones((40, 3)), np.arange(40) % 2
    points[7] = 1e200
    teacher = assign_teachers(np.ones(40, bool), 4, 0)
    teacher_data = TeacherData(points, codes, teacher, np.ones((5, 3)), ldp.LabelSpace([0, 1]))
    with pytest.warns(RuntimeWarning):  # as it would be
        Heads().fit(points, codes, teacher, 2)
    assert Heads().count_votes(teacher_data).sum() == 5 * 4
