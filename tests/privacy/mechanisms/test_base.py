from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import labeldp as ldp
from labeldp.accounting import PureLoss
from labeldp.mechanisms import GroupHistogram
from labeldp.privacy.mechanisms.base import check_distributions


@dataclass(frozen=True, eq=False)
class Loses(GroupHistogram):
    """A count that loses `factor` times the requested epsilon."""

    factor: float = 1.0

    def loss(self, n_labels=1):
        return PureLoss(self.factor * self.epsilon * n_labels)


GROUPS = np.zeros(4, int)


@pytest.mark.parametrize("labels", [1, 3])
def test_a_pure_loss_above_the_requested_epsilon_is_charged(labels):
    assert Loses(GROUPS, 0.1).price(labels) == (labels * Fraction(1, 10), 0)
    assert Loses(GROUPS, 0.5, factor=0.5).price(labels)[0] == labels * Fraction(1, 2)
    assert Loses(GROUPS, 0.5, factor=2.0).price(labels)[0] == labels


def test_a_pure_loss_does_not_hide_a_delta_that_is_stated():
    assert Loses(GROUPS, 0.5, delta=1e-6).price() == (Fraction(1, 2), Fraction(1, 10**6))


def test_priors_may_have_rounding_errors_of_single_precision():
    space = ldp.LabelSpace([0, 1])
    check_distributions(np.array([[0.5, 0.5 + 1.5e-5]]), space, 1)
    for bad in ([[0.5, 0.5 + 1e-4]], [[1.5, -0.5]], [[np.nan, 0.5]], [[1.0]]):
        with pytest.raises(ldp.InputError, match="prior"):
            check_distributions(np.array(bad), space, 1)


def test_other_arrays_are_a_different_request():
    one, same, other = (GroupHistogram(np.array(groups), 0.5) for groups in ([0, 1, 1], [0, 1, 1], [0, 0, 1]))
    assert one.parameters() == same.parameters()
    assert one.parameters() != other.parameters()
    assert one.parameters()["groups"]["shape"] == [3]
    assert one.parameters() != GroupHistogram(np.array([0, 1, 1], np.int8), 0.5).parameters()
