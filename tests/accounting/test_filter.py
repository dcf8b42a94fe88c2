from fractions import Fraction

import pytest

import labeldp as ldp
from labeldp.accounting import ApproximateLoss, GaussianLoss, PureLoss
from labeldp.accounting.costs import Cost
from labeldp.accounting.filter import PrivacyFilter
from labeldp.accounting.losses import rdp_to_epsilon


def test_the_order_is_where_gaussian_noise_may_spend_most():
    chosen = PrivacyFilter.of(ldp.Budget(1.0, 1e-5, "rdp"))
    room = {a: (1.0 - rdp_to_epsilon(0.0, a, 1e-5)) / a for a in (2.0, 8.0, 20.0, 60.0, chosen.order)}
    assert max(room, key=room.get) == chosen.order


def test_json_round_trip():
    for budget in (ldp.Budget(1.0), ldp.Budget(0.5, 1e-6, "rdp")):
        assert PrivacyFilter.from_json(PrivacyFilter.of(budget).to_json()) == PrivacyFilter.of(budget)


def test_admission_is_exact_at_the_edge():
    edge = PrivacyFilter(ldp.Budget(0.3))
    spent = Cost(Fraction(1, 10)) + Cost(Fraction(2, 10))
    edge.admit(Cost(), spent, spent)  # 0.1 + 0.2 is above 0.3 in float64
    with pytest.raises(ldp.BudgetExceeded):
        edge.admit(Cost(), spent + Cost(Fraction(1, 10**15)), spent)


def test_approximate_losses_have_no_renyi_bound():
    with pytest.raises(ldp.BudgetExceeded, match="no Renyi bound"):
        PrivacyFilter.of(ldp.Budget(1.0, 1e-5, "rdp")).cost(Fraction(1), Fraction(0), [ApproximateLoss(1.0, 1e-6)])


def test_a_delta_above_that_of_the_budget_is_not_admitted():
    edge = PrivacyFilter(ldp.Budget(1.0, 1e-6))
    within = Cost(Fraction(1, 2), Fraction(1, 10**6))
    edge.admit(Cost(), within, within)
    with pytest.raises(ldp.BudgetExceeded):
        edge.admit(within, within + Cost(delta=Fraction(1, 10**15)), within)


def test_the_renyi_cost_of_several_losses_is_their_sum():
    renyi = PrivacyFilter.of(ldp.Budget(1.0, 1e-5, "rdp"))
    losses = [
        GaussianLoss(10.0, 1.0),
        GaussianLoss(20.0, 1.0),
        PureLoss(0.1),
    ]
    together = renyi.cost(Fraction(1), Fraction(0), losses).rdp
    assert float(together) == pytest.approx(sum(loss.rdp(renyi.order) for loss in losses), rel=1e-12)


def test_the_delta_of_a_renyi_budget_is_for_the_conversion_and_is_never_used_up():
    renyi = PrivacyFilter.of(ldp.Budget(1.0, 1e-5, "rdp"))
    assert renyi.guarantee(Cost()) == (0, 0)
    assert renyi.remaining(Cost()) == (1.0, 1e-5)
    spent = renyi.cost(Fraction(1), Fraction(0), [GaussianLoss(20.0, 1.0)])
    assert renyi.guarantee(spent)[1] == Fraction(1, 10**5)
    epsilon, delta = renyi.remaining(spent)
    assert 0 < epsilon < 1
    assert delta == 1e-5


def test_what_is_left_is_never_below_zero():
    assert PrivacyFilter(ldp.Budget(1.0, 1e-6)).remaining(Cost(Fraction(2), Fraction(1, 10**5))) == (0.0, 0.0)
