from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.recipes.shares import refine_shares, split_epsilon

SPACE = ldp.LabelSpace([0, 1, 2])


@given(st.floats(1e-6, 1e4), st.floats(0.001, 0.99))
@settings(max_examples=500)
def test_two_parts_of_epsilon_add_up_to_it_and_never_to_more(epsilon, share):
    first, second = split_epsilon(epsilon, share)
    assume(second > 0)
    total, whole = Decimal(repr(first)) + Decimal(repr(second)), Decimal(repr(epsilon))
    assert total <= whole
    assert float(whole - total) <= 1e-9 * epsilon
    assert first == pytest.approx(epsilon * share, rel=0.01)
    assert second > 0


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 0.1 + 0.2, 1.0, 2 / 7])
def test_two_parts_of_awkward_epsilons_are_affordable_together(epsilon):
    first, second = split_epsilon(epsilon, 0.2)
    vault = ldp.Vault([0, 1, 2], SPACE, ldp.Budget(epsilon))
    for part in (first, second):
        vault.release(ldp.RandomizedResponse(part))
    assert vault.guarantee().epsilon == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(
    ("rows", "epsilon", "users", "shares"),
    [
        (50_000, 0.1, 1, [0.1, 0]),
        (50_000, 0.3, 1, [0.1, 0.2, 0]),
        (50_000, 0.5, 1, [0.1, 0.1, 0.3, 0]),
        (50_000, 1.0, 1, [0.1, 0.1, 0.8, 0]),
        (50_000, 4.0, 1, [0.1, 0.1, 0.2, 3.6]),
        (50_000, 4.0, 2, [0.2, 0.2, 0.4, 3.2]),
        (1_000, 4.0, 1, [0.5, 0.5, 1.0, 2.0]),
    ],
)
def test_sums_get_what_they_need_and_answers_the_rest(rows, epsilon, users, shares):
    sums, answers = refine_shares(epsilon, rows / 10, users)
    assert [*sums, answers] == pytest.approx(shares)


@given(st.floats(1e-3, 50), st.floats(0, 1e6), st.integers(1, 5))
def test_shares_are_above_zero_and_add_up_to_no_more_than_epsilon(epsilon, rows_a_class, users):
    sums, answers = refine_shares(epsilon, rows_a_class, users)
    assert min(sums) > 0
    assert answers >= 0
    total = sum(Decimal(repr(share)) for share in [*sums, answers])
    assert Decimal(repr(epsilon)) * Decimal("0.999999") <= total <= Decimal(repr(epsilon))
