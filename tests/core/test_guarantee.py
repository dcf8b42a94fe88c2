import math

import pytest

import labeldp as ldp


def test_a_guarantee_prints_as_what_it_says():
    assert repr(ldp.Guarantee(1.0)) == "Guarantee(epsilon=1.0, delta=0.0, unit='label')"
    guarantee = ldp.Guarantee(1.0, 1e-6, "user", "local", "why")
    assert ldp.Guarantee(**guarantee.to_json()) == guarantee


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan, True, "1"])
def test_bad_epsilons(epsilon):
    with pytest.raises(ldp.InputError, match="epsilon must be a finite number above zero"):
        ldp.Budget(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan, False, "0"])
def test_bad_deltas(delta):
    with pytest.raises(ldp.InputError, match="delta must be"):
        ldp.Budget(1.0, delta)


def test_bad_compositions():
    with pytest.raises(ldp.InputError, match="delta must be a number above 0"):
        ldp.Budget(1.0, composition="rdp")
    with pytest.raises(ldp.InputError, match="composition"):
        ldp.Budget(1.0, 1e-6, composition="magic")


def test_values_that_float64_cannot_honour():
    with pytest.raises(ldp.InputError, match="at least 1e-09"):
        ldp.Budget(1e-12)
    with pytest.raises(ldp.InputError, match="at least 1e-15"):
        ldp.Budget(1.0, 1e-18)


def test_whoever_scores_a_model_is_trusted_with_labels():
    local = ldp.Guarantee(1.0, trust="local")
    assert local.with_scoring_cost(0.0) == local
    assert local.with_scoring_cost(0.5) == ldp.Guarantee(1.0, trust="central")
    assert local.with_scoring_cost(2.0) == ldp.Guarantee(2.0, trust="central")
