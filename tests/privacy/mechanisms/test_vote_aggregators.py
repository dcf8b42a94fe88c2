import math
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import beta, chisquare
from scripted import Seeded
from votelaws import COUNTS, divergence, law_of, neighbors

import labeldp as ldp
from labeldp.accounting import GaussianLoss, PureLoss, compose
from labeldp.accounting.losses import rdp_to_epsilon, smallest_epsilon, unit_shift_delta
from labeldp.mechanisms import ConfidentGNMax, GNMax, LNMax
from labeldp.privacy.mechanisms.vote_aggregators import UnitShifts, VoteLoss

ORDERS = [1.3, 2.0, 5.0, 20.0]


NOISY = [
    LNMax(1.5, 1),
    LNMax(6.0, 1),
    GNMax(0.8, 1),
    GNMax(2.5, 1),
    ConfidentGNMax(5, 2.0, 1.0, 1, 1),
    ConfidentGNMax(7, 1.0, 3.0, 1, 1),
]


@pytest.mark.parametrize("mechanism", NOISY, ids=repr)
@pytest.mark.parametrize("counts", COUNTS)
def test_the_loss_is_never_below_the_true_divergence(mechanism, counts):
    law = law_of(counts, mechanism)
    assert law.sum() == pytest.approx(1, abs=1e-9)
    loss, bounds = mechanism.loss(1, 1), epsilons(mechanism)
    for other in neighbors(counts):
        changed = law_of(other, mechanism)
        for order in ORDERS:
            assert divergence(law, changed, order) <= loss.rdp(order) * (1 + 1e-9) + 1e-9
        for delta, epsilon in bounds.items():
            assert np.maximum(law - math.exp(epsilon) * changed, 0).sum() <= delta + 1e-9


@lru_cache
def epsilons(mechanism):
    found = {delta: mechanism.loss(1, 1).epsilon(delta) for delta in (0.0, 1e-3, 0.05)}
    return {delta: epsilon for delta, epsilon in found.items() if math.isfinite(epsilon)}


@pytest.mark.parametrize("mechanism", NOISY, ids=repr)
def test_the_code_draws_from_that_law(mechanism):
    counts, runs = [4, 5, 3], 8000
    many = type(mechanism)(**{**vars(mechanism), "max_queries": runs} | capped(mechanism, runs))
    codes = many.draw(np.tile(counts, (runs, 1)), Seeded(1)).codes
    drawn = np.bincount(np.where(codes < 0, 3, codes), minlength=4)
    expected = runs * np.append(law_of(counts, mechanism), [0.0])[:4]
    seen = expected > 0
    assert not drawn[~seen].any()
    assert chisquare(drawn[seen], expected[seen]).pvalue > 1e-4


def capped(mechanism, runs):
    return {"max_answers": runs} if isinstance(mechanism, ConfidentGNMax) else {}


def test_the_threshold_test_adds_noise_to_the_largest_count_alone(monkeypatch):
    requests = []

    def nothing(width, count, bits):
        requests.append((float(width), count))
        return np.zeros(count, np.int64)

    monkeypatch.setattr("labeldp.privacy.mechanisms.vote_aggregators.discrete_gaussian", nothing)
    votes = np.array([[5, 1, 0], [2, 2, 2], [0, 1, 5], [3, 3, 0]])
    answers = ConfidentGNMax(5, 3.0, 2.0, 4, 4).draw(votes)
    assert requests == [(3.0, 4), (2.0, 6)]  # one number for each query; then each count of the two that passed
    assert answers.codes.tolist() == [0, -1, 2, -1]
    assert (answers.n_queries, answers.n_answered) == (4, 2)


def test_ties_go_to_the_first_class(monkeypatch):
    monkeypatch.setattr(
        "labeldp.privacy.mechanisms.vote_aggregators.discrete_laplace", lambda w, n, b: np.zeros(n, np.int64)
    )
    assert LNMax(1.0, 2).draw(np.array([[1, 3, 3], [2, 2, 2]])).codes.tolist() == [1, 0]


def test_a_run_stops_at_its_caps():
    votes = np.tile([50, 0], (10, 1))
    answers = GNMax(1.0, 4).draw(votes, Seeded(0))
    assert answers.codes.tolist() == [0] * 4 + [-1] * 6
    assert (answers.n_queries, answers.n_answered) == (4, 4)
    answers = ConfidentGNMax(10, 1.0, 1.0, 8, 3).draw(votes, Seeded(0))
    assert answers.codes.tolist() == [0] * 3 + [-1] * 7
    assert (answers.n_queries, answers.n_answered) == (3, 3)
    assert ConfidentGNMax(10, 1.0, 1.0, 8, 3).caps == (8, 3)


def test_losses_add_up_and_compose():
    loss = LNMax(20.0, 100).loss(100, 100)
    assert loss.epsilon(0.0) == pytest.approx(10.0)
    assert loss.epsilon(1e-5) < 3.2
    assert LNMax(20.0, 1).loss(1, 1).epsilon(1e-12) == pytest.approx(0.1)  # no more than the plain sum
    assert loss.rdp(3.0) == pytest.approx(200 * PureLoss(0.05).rdp(3.0))
    gaussian = GNMax(40.0, 100).loss(50, 50)
    assert gaussian.epsilon(0.0) == math.inf
    assert gaussian.rdp(4.0) == pytest.approx(50 * 4 / 1600)
    assert gaussian.epsilon(1e-5) == pytest.approx(GaussianLoss(40.0, 10.0, n_shifts=50).epsilon(1e-5), rel=1e-3)
    tested = ConfidentGNMax(200, 150, 40, 600, 300).loss(600, 300)
    assert tested == VoteLoss((UnitShifts("gaussian", 150, 600), UnitShifts("gaussian", 40, 600)))
    assert tested.rdp(10.0) == pytest.approx(10 * (600 / (2 * 150**2) + 300 / 40**2))
    assert ConfidentGNMax(200, 150, 40, 600, 300).loss(600, 0).rdp(2.0) == pytest.approx(2 * 600 / (2 * 150**2))
    assert max(gaussian.epsilon(1e-5), tested.epsilon(1e-5)) < compose([gaussian, tested], 1e-5)


def test_the_guarantee_is_for_a_whole_run():
    guarantee = LNMax(20.0, 100).guarantee()
    assert (guarantee.epsilon, guarantee.unit, guarantee.trust) == (pytest.approx(10.0), "label", "central")
    assert GNMax(40.0, 100).guarantee(1e-5).delta == 1e-5


def lower_bound(hits, others, runs, delta=0.0):
    """A lower bound on epsilon that holds with 99.99 %, from how often an event was seen on two neighbors."""
    low = beta.ppf(5e-5, hits, runs - hits + 1) if hits else 0.0
    high = beta.ppf(1 - 5e-5, others + 1, runs - others) if others < runs else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda n: LNMax(4.0, n),
        lambda n: GNMax(4.0, n),
        lambda n: ConfidentGNMax(10, 4.0, 4.0, n, n),
    ],
)
def test_an_audit_by_sampling_finds_no_violation(make):
    runs = 20000
    for counts, other in [([10, 10], [9, 11]), ([12, 8, 0], [11, 9, 0])]:
        here, there = (make(runs).draw(np.tile(c, (runs, 1)), Seeded(s)).codes for s, c in enumerate((counts, other)))
        for delta in (0.0, 1e-3):
            claimed = make(1).loss(1, 1).epsilon(delta)
            for code in (-1, 0, 1):
                hits, others = (here == code).sum(), (there == code).sum()
                assert lower_bound(hits, others, runs, delta) <= claimed
                assert lower_bound(others, hits, runs, delta) <= claimed


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, True, "20", 2.0**51])
def test_bad_noise_is_refused(bad):
    with pytest.raises(ldp.InputError, match="must be a finite number above zero"):
        LNMax(bad, 1)
    with pytest.raises(ldp.InputError, match="must be a finite number above zero"):
        GNMax(bad, 1)
    with pytest.raises(ldp.InputError, match="sigma2 must be"):
        ConfidentGNMax(1, 1.0, bad, 1, 1)


def test_bad_caps_thresholds_and_votes_are_refused():
    with pytest.raises(ldp.InputError, match="max_queries must be a whole number from 1"):
        GNMax(1.0, 0)
    for make in (lambda: LNMax(1.0, 0), lambda: ConfidentGNMax(1, 1.0, 1.0, 0, 1)):
        with pytest.raises(ldp.InputError, match="max_queries must be a whole number from 1"):
            make()
    for width in (2.0**-50, 2.0**50):
        with pytest.raises(ldp.InputError, match="scale must be a finite number"):
            LNMax(width, 1)
    with pytest.raises(ldp.InputError, match="max_answers must be a whole number from 1"):
        ConfidentGNMax(1, 1.0, 1.0, 5, 1.5)
    with pytest.raises(ldp.InputError, match="threshold must be a finite number"):
        ConfidentGNMax(math.nan, 1.0, 1.0, 5, 1)
    for votes in (np.ones(3, int), np.ones((3, 1), int), np.ones((3, 2))):
        with pytest.raises(ldp.InputError, match="Votes must be whole numbers"):
            GNMax(1.0, 1).draw(votes)


@pytest.mark.parametrize("sigma", [50.0, 200.0, 3000.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_wide_noise_is_charged_the_closed_form_which_is_never_below_the_exact_loss(sigma, delta):
    stated = GNMax(sigma, 1).loss(1, 1).epsilon(delta)
    exact = smallest_epsilon(lambda epsilon: unit_shift_delta(epsilon, sigma), delta)
    assert exact <= stated <= exact * 1.002 + 1e-4


def test_very_wide_noise_is_accounted_for_at_once():
    assert GNMax(1e10, 9_000).guarantee(1e-5).epsilon < 1e-4
    mixed = ConfidentGNMax(200, 1e6, 1e5, 10_000, 1_000)
    slow = min(rdp_to_epsilon(mixed.loss(10_000, 1_000).rdp(order), order, 1e-5) for order in ORDERS)
    assert mixed.guarantee(1e-5).epsilon <= slow


def test_votes_of_any_whole_type_are_counted_in_64_bits():
    seen = []

    class Spy(GNMax):
        def _draw(self, votes, bits):
            seen.append(votes.dtype)
            return super()._draw(votes, bits)

    Spy(1.0, 3).draw(np.ones((3, 2), np.uint8))
    assert seen == [np.int64]
