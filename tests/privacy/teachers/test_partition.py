import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.privacy.teachers.partition import assign_teachers


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5), st.data())
def test_parts_are_disjoint_whole_and_even(rows, teachers, seed, data):
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    if not teachers <= chosen.sum():
        with pytest.raises(ldp.InputError, match="each needs at least one"):
            assign_teachers(chosen, teachers, seed)
        return
    teacher = assign_teachers(chosen, teachers, seed)
    assert np.array_equal(teacher >= 0, chosen)
    sizes = np.bincount(teacher[chosen], minlength=teachers)
    assert sizes.sum() == chosen.sum()
    assert sizes.max() - sizes.min() <= 1


def test_a_user_meets_one_teacher_alone():
    users = np.repeat(np.arange(20), 5)
    teacher = assign_teachers(np.ones(100, bool), 7, 0, users)
    assert all(len(set(teacher[users == user])) == 1 for user in range(20))
    with pytest.raises(ldp.InputError, match="20 users for 21 teachers"):
        assign_teachers(np.ones(100, bool), 21, 0, users)


def test_seeds_deal_differently():
    assert not np.array_equal(assign_teachers(np.ones(100, bool), 10, 0), assign_teachers(np.ones(100, bool), 10, 1))
