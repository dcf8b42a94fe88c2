import math
from itertools import product

import numpy as np
import pytest
from votelaws import COUNTS, divergence, law_of, neighbors

import labeldp as ldp
from labeldp.accounting.losses import rdp_to_epsilon
from labeldp.mechanisms import ConfidentGNMax, GNMax, LNMax, StableVote
from labeldp.privacy.teachers.vote_accounting import (
    ORDERS,
    account_votes,
    answer_probabilities,
    data_dependent_rdp,
    data_independent_rdp,
    epsilon_from_rdp,
    gaussian_rdp,
    laplace_rdp,
    log_rarer_probability,
    log_wrong_probability,
)

FEW = np.array([1.2, 2.0, 4.0, 9.0, 30.0])
AGREED = [[16, 1, 0], [12, 0, 0, 1], [11, 9], [25, 2], [30, 0, 0], [0, 0, 22], [9, 14, 2]]
NOISY = [
    LNMax(1.5, 1),
    LNMax(6.0, 1),
    GNMax(1.0, 1),
    GNMax(2.5, 1),
    GNMax(5.0, 1),
]
TESTED = [ConfidentGNMax(9, 3.0, 2.0, 1, 1), ConfidentGNMax(14, 1.5, 3.0, 1, 1)]


@pytest.mark.parametrize("mechanism", NOISY, ids=repr)
@pytest.mark.parametrize("counts", COUNTS + AGREED)
def test_the_data_dependent_bound_is_never_below_the_true_divergence(mechanism, counts):
    votes, law = np.array([counts]), law_of(counts, mechanism)
    assert np.delete(law, np.argmax(counts)).sum() <= np.exp(log_wrong_probability(votes, mechanism)[0]) * (1 + 1e-8)
    bound = data_dependent_rdp(votes, mechanism, FEW)
    assert (bound <= data_independent_rdp(mechanism, 1, 1, FEW) * (1 + 1e-12)).all()
    for other in neighbors(counts):
        changed = law_of(other, mechanism)
        for order, limit in zip(FEW, bound, strict=True):
            assert divergence(law, changed, order) <= limit * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("mechanism", TESTED, ids=repr)
@pytest.mark.parametrize("counts", COUNTS + AGREED)
def test_test_and_maximum_together_are_never_below_the_true_divergence(mechanism, counts):
    votes, law = np.array([counts]), law_of(counts, mechanism)
    assert answer_probabilities(votes, mechanism)[0] == pytest.approx(1 - law[-1], abs=1e-8)
    assert log_rarer_probability(votes, mechanism)[0] == pytest.approx(math.log(min(law[-1], law[:-1].sum())), abs=1e-6)
    bound = data_dependent_rdp(votes, mechanism, FEW, np.ones(1))  # a query that is answered pays for both
    test = gaussian_rdp(log_rarer_probability(votes, mechanism), math.sqrt(2) * mechanism.sigma1, FEW)[0]
    for other in neighbors(counts):
        changed = law_of(other, mechanism)
        coins = [np.array([v[-1], v[:-1].sum()]) for v in (law, changed)]
        for order, limit, tested in zip(FEW, bound, test, strict=True):
            assert divergence(law, changed, order) <= limit * (1 + 1e-9) + 1e-9
            assert divergence(*coins, order) <= tested * (1 + 1e-9) + 1e-9


def test_agreement_is_cheap():
    orders = np.array([8.0])
    for mechanism in (GNMax(40.0, 1), LNMax(20.0, 1)):
        costs = [data_dependent_rdp(np.array([[250 - 2 * k, k, k]]), mechanism, orders)[0] for k in (0, 20, 40, 80)]
        assert costs == sorted(costs)
        assert costs[0] < 0.1 * costs[-1]


@pytest.mark.parametrize("bound", [lambda q: gaussian_rdp(q, 40.0, FEW), lambda q: laplace_rdp(q, 20.0, FEW)])
def test_the_bounds_grow_with_q(bound):
    table = bound(np.linspace(-120, 0, 2000))
    assert (np.diff(table, axis=0) >= -1e-12).all()
    assert np.isfinite(table).all()


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.0, 1.5, 7.0, 40.0])
def test_gaussian_bounds_are_theorem_6_one_query_at_a_time(sigma):
    """A slow, plain writing of the theorem, with the conditions under which it holds."""
    for log_q, order in product([-90.0, -40.0, -9.0, -3.0, -1.2, -0.5, -0.05], [1.5, 3.0, 12.0]):
        q, expected = math.exp(log_q), order / sigma**2
        m2 = sigma * math.sqrt(-log_q)
        m1, r1, r2 = m2 + 1, (m2 + 1) / sigma**2, m2 / sigma**2
        if (
            m2 > 1
            and order <= m1
            and log_q + r2 < 0
            and (log_q <= (m2 - 1) * r2 - m2 * (math.log(m1 / (m1 - 1)) + math.log(m2 / (m2 - 1))))
        ):
            a = (1 - q) / (1 - (q * math.exp(r2)) ** ((m2 - 1) / m2))
            b = math.exp(r1) / q ** (1 / (m1 - 1))
            expected = min(expected, math.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1))
        ours = gaussian_rdp(np.array([log_q]), sigma, np.array([order]))[0, 0]
        assert ours == pytest.approx(expected, rel=1e-6, abs=1e-14)


def test_weighted_sums_are_sums():
    votes = np.random.default_rng(0).multinomial(50, [0.6, 0.2, 0.1, 0.1], 300)
    weights = np.random.default_rng(1).random(300)
    log_q = log_wrong_probability(votes, GNMax(5.0, 1))
    assert gaussian_rdp(log_q, 5.0, FEW, weights) == pytest.approx(weights @ gaussian_rdp(log_q, 5.0, FEW))
    log_q = log_wrong_probability(votes, LNMax(5.0, 1))
    assert laplace_rdp(log_q, 5.0, FEW, weights) == pytest.approx(weights @ laplace_rdp(log_q, 5.0, FEW))


VOTES = np.random.default_rng(0).multinomial(100, [0.7, 0.1, 0.1, 0.1], 400)


def test_every_query_pays_for_its_test():
    mechanism = ConfidentGNMax(200, 20.0, 10.0, 400, 400)  # a threshold that nothing reaches
    result = account_votes(VOTES, mechanism, 1e-5, conversion="classic")
    assert result.answers < 1
    assert result.epsilon_data_independent == pytest.approx(
        epsilon_from_rdp(ORDERS * 400 / (2 * 20.0**2) + ORDERS / 10.0**2, ORDERS, 1e-5, "classic")[0]
    )
    tests = gaussian_rdp(log_rarer_probability(VOTES, mechanism), math.sqrt(2) * 20, ORDERS, np.ones(400))
    assert (data_dependent_rdp(VOTES, mechanism) >= tests).all()


def test_conversions():
    for mechanism in (
        LNMax(10.0, 1),
        GNMax(20.0, 1),
        ConfidentGNMax(60, 30.0, 20.0, 1, 1),
    ):
        classic, tight = (account_votes(VOTES, mechanism, 1e-5, conversion=c) for c in ("classic", "tight"))
        assert tight.epsilon_data_dependent < classic.epsilon_data_dependent
        assert tight.epsilon_data_independent < classic.epsilon_data_independent
        assert tight.epsilon_data_dependent <= tight.epsilon_data_independent
        by_votes = isinstance(mechanism, ConfidentGNMax)
        assert tight.publishable == (() if by_votes else ("epsilon_data_independent",))
        assert "epsilon_sanitized" not in tight.to_json()
    rdp, order = np.array([0.5]), np.array([10.0])
    assert epsilon_from_rdp(rdp, order, 1e-5, "classic")[0] == pytest.approx(0.5 + math.log(1e5) / 9)
    assert epsilon_from_rdp(rdp, order, 1e-5, "tight")[0] == pytest.approx(rdp_to_epsilon(0.5, 10.0, 1e-5))


def test_the_walk_stops_at_queries_or_expected_answers():
    mechanism = ConfidentGNMax(70, 10.0, 10.0, 1, 1)
    chances = answer_probabilities(VOTES, mechanism)
    result = account_votes(VOTES, mechanism, 1e-5, n_answers=50)
    assert chances[: result.queries].sum() >= 50 > chances[: result.queries - 1].sum()
    assert result.answers == 50
    assert account_votes(VOTES, mechanism, 1e-5, n_queries=7).queries == 7
    assert account_votes(VOTES, GNMax(10.0, 1), 1e-5, n_answers=30).queries == 30
    assert account_votes(VOTES, GNMax(10.0, 1), 1e-5).queries == 400
    first, second = (account_votes(VOTES, mechanism, 1e-5, n_queries=n).epsilon_data_dependent for n in (100, 200))
    assert first < second


BAD = {
    "both stops": ({"n_queries": 3, "n_answers": 3}, "not at both"),
    "too many queries": ({"n_queries": 401}, "from 1 to the 400"),
    "no queries": ({"n_queries": 0}, "from 1 to the 400"),
    "too many answers": ({"n_answers": 500}, "fewer than 500 expected answers"),
    "no answers": ({"n_answers": -1}, "above zero"),
    "conversion": ({"conversion": "loose"}, "classic or tight"),
    "delta": ({"delta": 0.0}, "delta must be"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests(case):
    options, message = BAD[case]
    with pytest.raises(ldp.InputError, match=message):
        account_votes(VOTES, GNMax(10.0, 1), **{"delta": 1e-5} | options)


@pytest.mark.parametrize(
    "votes", [[1, 2], [[1], [2]], [[1.5, 2]], [[-1, 2]], [[math.nan, 1]], [["a", "b"]], np.empty((0, 3)), [[2e6, 1]]]
)
def test_bad_votes(votes):
    with pytest.raises(ldp.InputError, match=r"otes"):
        account_votes(votes, GNMax(10.0, 1), 1e-5)


def test_only_noisy_votes_are_accounted():
    with pytest.raises(ldp.InputError, match="LNMax, GNMax and ConfidentGNMax"):
        account_votes(VOTES, StableVote(1.0, 1e-5, 1, 1), 1e-5)


@pytest.mark.parametrize("conversion", ["classic", "tight"])
def test_an_epsilon_is_rounded_up(conversion):
    rdp, orders = np.array([90.0]), np.array([4.0])
    exact = rdp_to_epsilon(90.0, 4.0, 1e-5, conversion)
    assert exact < epsilon_from_rdp(rdp, orders, 1e-5, conversion)[0] <= exact * (1 + 1e-8)


def test_one_query_and_every_answer_can_be_walked():
    votes = np.array([[9, 1], [8, 2], [10, 0]])
    assert account_votes(votes, LNMax(2.0, 3), 1e-5, n_queries=1).queries == 1
    assert account_votes(votes, LNMax(2.0, 3), 1e-5, n_answers=3).queries == 3
    assert account_votes(votes, LNMax(2.0, 3), 1e-5, n_answers=0.5).queries == 1
