from decimal import Decimal

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.accounting.calibration import calibrated_loss
from labeldp.accounting.losses import compose
from labeldp.mechanisms import LinearQuery
from labeldp.recipes.budget_split import split_composed, split_epsilon, split_refine_epsilon, sums_epsilon_fraction

SPACE = ldp.LabelSpace([0, 1, 2])


@given(st.floats(1e-6, 1e4), st.floats(0.001, 0.99))
@settings(max_examples=500)
def test_two_parts_of_epsilon_add_up_to_it_and_never_to_more(epsilon, fraction):
    first, second = split_epsilon(epsilon, fraction)
    assume(second > 0)
    total, whole = Decimal(repr(first)) + Decimal(repr(second)), Decimal(repr(epsilon))
    assert total <= whole
    assert float(whole - total) <= 1e-9 * epsilon
    assert first == pytest.approx(epsilon * fraction, rel=0.01)
    assert second > 0


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 0.1 + 0.2, 1.0, 2 / 7])
def test_two_parts_of_awkward_epsilons_are_affordable_together(epsilon):
    first, second = split_epsilon(epsilon, 0.2)
    vault = ldp.Vault([0, 1, 2], SPACE, ldp.Budget(epsilon))
    for budget in (first, second):
        vault.release(ldp.RandomizedResponse(budget))
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
    sums, response_epsilon = split_refine_epsilon(epsilon, rows / 10, users)
    assert [*sums, response_epsilon] == pytest.approx(shares)


@given(st.floats(1e-3, 50), st.floats(0, 1e6), st.integers(1, 5))
def test_shares_are_above_zero_and_add_up_to_no_more_than_epsilon(epsilon, rows_per_class, users):
    sums, response_epsilon = split_refine_epsilon(epsilon, rows_per_class, users)
    assert min(sums) > 0
    assert response_epsilon >= 0
    total = sum(Decimal(repr(fraction)) for fraction in [*sums, response_epsilon])
    assert Decimal(repr(epsilon)) * Decimal("0.999999") <= total <= Decimal(repr(epsilon))


@pytest.mark.parametrize(
    ("epsilon", "table", "other"),
    [(0.01, 1.0, 1.0), (1.49, 1.0, 1.0), (1.5, 0.25, 0.5), (2.99, 0.25, 0.5), (3.0, 0.2, 0.3), (50.0, 0.2, 0.3)],
)
def test_the_more_noisy_labels_say_the_less_sums_get_and_least_for_tables(epsilon, table, other):
    assert (sums_epsilon_fraction(epsilon, True), sums_epsilon_fraction(epsilon, False)) == (table, other)


GAUSSIAN, PURE = "gaussian", "pure"
FRACTIONS = st.lists(st.tuples(st.floats(0.1, 10), st.sampled_from([GAUSSIAN, PURE])), min_size=1, max_size=5)


@given(st.floats(0.01, 30), st.just(0.0) | st.floats(1e-12, 1e-2), FRACTIONS)
@example(4.0, 0.0, [(3, PURE), (3, PURE), (3, PURE), (0.25, PURE)])
@settings(max_examples=80)
def test_composed_steps_never_cost_more_than_the_whole_and_hardly_less(epsilon, delta, fractions):
    assume(delta < epsilon / 20)  # a delta near epsilon composes to more than epsilon, whatever the noise
    budgets = split_composed(epsilon, delta, fractions)
    cost = compose([calibrated_loss(*budget) for budget in budgets], delta)
    assert cost <= epsilon
    assert max(budget for budget, _ in budgets) <= epsilon
    if delta < epsilon / 1000:  # else a step may be as large as the whole, and no more is given to it
        assert cost >= epsilon * (1 - 1e-2)
    assert [budget for _, budget in budgets] == [delta if noise == GAUSSIAN else 0.0 for _, noise in fractions]
    # Steps are rounded down to five digits. With delta 0, the last step gets what rounding took from all others.
    scale = max(budget for budget, _ in budgets) / max(fraction for fraction, _ in fractions)
    rounding = 2e-4 * sum(budget for budget, _ in budgets)
    for (budget, _), (fraction, _) in zip(budgets, fractions, strict=True):
        assert budget == pytest.approx(scale * fraction, abs=rounding)
    assert budgets == split_composed(epsilon, delta, fractions)


def test_a_delta_that_no_noise_composes_to_is_refused():
    with pytest.raises(ldp.InputError, match=r"3 releases .* epsilon 0\.01 at delta 0\.008: use a smaller"):
        split_composed(0.01, 0.008, [(1, GAUSSIAN)] * 3)


def test_two_equal_gaussian_steps_get_clearly_more_than_half_each():
    (first, delta), second = split_composed(1.0, 1e-6, [(1, GAUSSIAN), (1, GAUSSIAN)])
    assert second == (first, delta) == (pytest.approx(0.689, abs=0.001), 1e-6)
    # As two of a 1/sqrt(2) of the length of one: no more than that could be.
    ratio = calibrated_loss(first, 1e-6).sigma / calibrated_loss(1.0, 1e-6).sigma
    assert ratio == pytest.approx(2**0.5, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 0.1 + 0.2, 1.0, 2 / 7])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_composed_steps_of_awkward_epsilons_are_affordable(epsilon, delta):
    budgets = split_composed(epsilon, delta, [(1, GAUSSIAN), (2, PURE), (4, GAUSSIAN)])
    vault = ldp.Vault([0, 1, 2] * 20, SPACE, ldp.Budget(epsilon, delta))
    plan = vault.plan(*[calibrated_loss(*budget) for budget in budgets], delta=delta)
    plan.release(LinearQuery([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]] * 20, *budgets[0]))
    plan.release(ldp.RandomizedResponse(budgets[1][0]))
    plan.release(LinearQuery([[0.3], [-7.0], [0.0]] * 20, *budgets[2]))
    assert vault.guarantee().epsilon == pytest.approx(epsilon, rel=1e-3 if delta else 1e-12)


def test_without_delta_the_parts_are_decimals_that_add_up_exactly():
    assert split_composed(0.3, 0.0, [(1, GAUSSIAN), (2, PURE), (1, PURE)]) == [(0.075, 0.0), (0.15, 0.0), (0.075, 0.0)]
    assert split_composed(1.0, 0.0, [(1, PURE)] * 3) == [(0.33333, 0.0), (0.33333, 0.0), (0.33334, 0.0)]


@pytest.mark.parametrize("shares", [[], [(0.0, PURE)], [(1.0, PURE), (-1.0, GAUSSIAN)], [(float("inf"), PURE)]])
def test_shares_that_divide_nothing_are_refused(shares):
    with pytest.raises(ldp.InputError, match="a share above 0 for each step"):
        split_composed(1.0, 1e-6, shares)
