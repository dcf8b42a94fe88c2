import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import beta
from scripted import Seeded

import labeldp as ldp
from labeldp.accounting import PureLoss, compose
from labeldp.core import unproven
from labeldp.mechanisms import GNMax, ImmutableArgmax, LNMax, StableVote
from labeldp.privacy.mechanisms.stable import distances_to_instability
from labeldp.privacy.mechanisms.vote_tails import laplace_difference_tail


def all_votes(teachers, classes):
    return [v for v in product(range(teachers + 1), repeat=classes) if sum(v) == teachers]


def moved(votes):
    for i, j in product(range(len(votes)), repeat=2):
        if i != j and votes[i]:
            other = list(votes)
            other[i] -= 1
            other[j] += 1
            yield tuple(other)


def by_search(votes):
    """How many votes must move to change the winner, by trying all ways."""
    winner, reached, steps = int(np.argmax(votes)), {votes}, 0
    while all(int(np.argmax(v)) == winner for v in reached):
        reached, steps = {n for v in reached for n in moved(v)}, steps + 1
    return steps


@pytest.mark.parametrize(("teachers", "classes"), [(5, 2), (6, 2), (5, 3), (6, 3), (4, 4)])
def test_the_distance_is_what_a_search_finds_and_moves_by_one_at_most(teachers, classes):
    known = {v: int(distances_to_instability(np.array([v]))[0]) for v in all_votes(teachers, classes)}
    for votes, distance in known.items():
        assert distance == by_search(votes)
        for other in moved(votes):
            assert abs(known[other] - distance) <= 1
            if np.argmax(other) != np.argmax(votes):
                assert known[other] == distance == 1


def one_query_law(votes, m):
    """P(the winner is released) for one query: the difference of two Laplace noises against the threshold."""
    short = m.threshold - int(distances_to_instability(np.array([votes]))[0])
    k = np.array([max(short, 0), max(1 - short, 0)])
    tail = np.exp(laplace_difference_tail(float(m.noise_scale), k))
    return tail[0] if short >= 1 else 1 - tail[1]


@pytest.mark.parametrize("setting", [(1.0, 1e-3, 1, 1), (3.0, 0.05, 1, 1), (0.5, 1e-6, 100, 1), (4.0, 0.05, 9, 3)])
def test_one_query_satisfies_the_guarantee_exactly(setting):
    m = StableVote(*setting)
    for votes in all_votes(12, 3):
        here = outcome_law(votes, m)
        for other in moved(votes):
            there = outcome_law(other, m)
            assert np.maximum(here - math.exp(m.epsilon) * there, 0).sum() <= m.delta + 1e-12


def outcome_law(votes, m):
    law, probability = np.zeros(4), one_query_law(votes, m)
    law[np.argmax(votes)], law[3] = probability, 1 - probability
    return law


def threshold_noise(m):
    """The law of the noise on the threshold, and for each of its values the probability that a distance passes."""
    x = np.arange(-400, 401)
    mass = np.exp(-np.abs(x) / float(m.noise_scale))
    mass /= mass.sum()
    tail = np.append(np.cumsum(mass[::-1])[::-1], 0.0)  # P(X >= x[0] + i)
    return mass, lambda d: tail[np.clip(m.threshold + x - d - x[0], 0, x.size)]


@pytest.mark.parametrize("between", [1, 3, 10, 20, 30, 60])
def test_an_unstable_query_passes_in_a_whole_run_with_probability_at_most_delta(between):
    """Parts that lasted long have a low threshold. The sum is over the start of the part of each query."""
    m = StableVote(3.0, 0.05, 8, 4)
    mass, passes = threshold_noise(m)
    distances = [1 if i % 2 else between for i in range(8)]
    begins = np.zeros((5, 9))  # the probability that part j begins at query s
    begins[0, 0], p_unstable = 1.0, 0.0
    for part, start in product(range(4), range(8)):
        still = mass * begins[part, start]
        for i in range(start, 8):
            passed = still * passes(distances[i])
            begins[part + 1, i + 1] += (still - passed).sum()
            p_unstable += passed.sum() if distances[i] == 1 else 0.0
            still = passed
    assert 0 < p_unstable <= m.delta


def test_patterns_of_two_queries_by_summation():
    """The whole run on two queries, the threshold noise shared between them until one fails."""
    m = StableVote(2.0, 0.05, 2, 1)
    mass, passes = threshold_noise(m)

    def law(first, second):
        p, q = passes(first), passes(second)
        return np.array([(mass * (1 - p)).sum(), (mass * p * (1 - q)).sum(), (mass * p * q).sum()])

    for first, second in product(range(1, 40, 3), repeat=2):
        here = law(first, second)
        for one, two in product((-1, 0, 1), repeat=2):
            there = law(first + one, second + two)
            assert np.abs(np.log(here / there)).max() <= m.epsilon * (1 + 1e-9)


def test_an_unstable_query_passes_with_less_than_delta():
    for m in (StableVote(1.0, 1e-5, 1000, 1), StableVote(1.0, 1e-5, 1000, 50)):
        probability = 1000 * m.max_unstable * math.exp(laplace_difference_tail(float(m.noise_scale), m.threshold - 1))
        assert 0.1 * m.delta < probability <= m.delta
        assert math.exp(laplace_difference_tail(float(m.noise_scale), m.distance_for(0.9) - m.threshold)) <= 0.1 + 1e-9


def test_where_parts_are_composed_winners_have_the_other_half_of_delta():
    """Composition takes delta / 2, so that an unstable query may pass with probability delta / 2 at most."""
    m = StableVote(1.0, 1e-5, 1000, 100)
    assert m.noise_scale < 3 * 100  # composed, not added up
    probability = 1000 * 100 * math.exp(laplace_difference_tail(float(m.noise_scale), m.threshold - 1))
    assert 0.1 * m.delta < probability <= m.delta / 2


def test_many_parts_are_composed_where_that_needs_less_noise():
    few, many = StableVote(1.0, 1e-5, 1000, 2), StableVote(1.0, 1e-5, 1000, 100)
    assert few.noise_scale == 6  # 3 * 2 / 1: plain addition
    assert many.noise_scale < 300
    assert compose([PureLoss(float(3 / many.noise_scale))] * 100, 5e-6) <= 1.0
    assert many.loss(1000, 1000).epsilon(1e-5) == 1.0
    assert many.guarantee(1e-5).epsilon == 1.0
    assert many.guarantee(1e-6).epsilon == math.inf
    with pytest.raises(ldp.InputError, match="raise max_queries"):
        many.loss(1001, 1)


def test_agreed_queries_are_answered_and_the_run_halts():
    m = StableVote(5.0, 1e-3, 50, 2)
    agreed, split = [1000, 0, 0], [500, 500, 0]
    votes = np.array([agreed, agreed, split, agreed, split, agreed])
    answers = m.draw(votes, Seeded(0))
    assert answers.codes.tolist() == [0, 0, -1, 0, -1, -1]
    assert (answers.n_queries, answers.n_answered) == (5, 3)
    answers = m.draw(np.tile(agreed, (60, 1)), Seeded(0))
    assert (answers.n_queries, answers.n_answered) == (50, 50)


def test_the_threshold_is_drawn_anew_after_each_unstable_query(monkeypatch):
    counts_drawn = []

    def nothing(width, count, bits):
        counts_drawn.append(count)
        return np.zeros(count, np.int64)

    monkeypatch.setattr("labeldp.privacy.mechanisms.stable.discrete_laplace", nothing)
    StableVote(1.0, 1e-5, 20, 7).draw(np.ones((15, 3), int))
    assert counts_drawn == [15, 7]


def lower_bound(hits, others, runs, delta):
    low = beta.ppf(5e-5, hits, runs - hits + 1) if hits else 0.0
    high = beta.ppf(1 - 5e-5, others + 1, runs - others) if others < runs else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


@pytest.fixture
def immutable(monkeypatch):
    monkeypatch.setattr(unproven, "_ALLOWED", set())
    ldp.allow_unproven("immutable")
    return ImmutableArgmax


def test_the_audit_breaks_the_immutable_argmax_and_not_the_stable_vote(immutable):
    counts, other, runs, delta = [51, 50], [50, 51], 2000, 1e-5
    for noise, scale in (("laplace", 20.0), ("gaussian", 40.0)):
        m = immutable(scale, runs, noise)
        here, there = (m.draw(np.tile(c, (runs, 1)), Seeded(s)).codes for s, c in enumerate((counts, other)))
        claimed = m.claimed_loss(1).epsilon(delta)
        found = lower_bound((here == 0).sum(), (there == 0).sum(), runs, delta)
        assert claimed < 0.2
        assert found > 5
    m = StableVote(1.0, delta, 1, 1)
    for pair in ((counts, other), ([70, 31], [69, 32])):
        seen = [np.array([m.draw(np.array([c]), Seeded(i)).codes[0] for i in range(1000)]) for c in pair]
        for code in (-1, 0, 1):
            hits, others = ((codes == code).sum() for codes in seen)
            assert max(lower_bound(hits, others, 1000, delta), lower_bound(others, hits, 1000, delta)) <= m.epsilon


def test_the_constant_is_that_of_the_paper(immutable):
    assert immutable(20.0, 1, tau=1e-3).constant_for(10) == pytest.approx(20 * math.log(10 / 1e-3))
    assert immutable(40.0, 1, "gaussian", 1e-3).constant_for(10) == pytest.approx(math.sqrt(3200 * math.log(20 / 1e-3)))
    published = immutable(1e10, 100, constant=1e100)
    assert published.constant_for(10) == 1e100
    votes = np.random.default_rng(0).multinomial(250, [0.2] * 5, 100)
    assert (published.draw(votes).codes == votes.argmax(axis=1)).all()


def test_noise_beats_the_constant_as_rarely_as_the_paper_says(immutable):
    m = immutable(20.0, 20000, tau=0.05)
    wrong = (m.draw(np.tile([10, 9, 9], (20000, 1)), Seeded(3)).codes != 0).mean()
    assert 0 < wrong < 0.05


def test_it_guarantees_nothing(immutable):
    m = immutable(20.0, 10)
    assert m.guarantee(1e-5).epsilon == math.inf
    assert m.loss(1, 1).rdp(2.0) == math.inf
    with pytest.raises(ldp.InputError, match="not private"):
        m.loss(1, 1).distribution()
    for bad in ({"noise": "none"}, {"tau": 0.0}, {"constant": -1.0}, {"constant": math.inf}):
        with pytest.raises(ldp.InputError):
            immutable(20.0, 10, **bad)


def test_it_must_be_switched_on_by_name(monkeypatch):
    monkeypatch.setattr(unproven, "_ALLOWED", set())
    with pytest.raises(ldp.InputError, match=r"allow_unproven\(\"immutable\"\)"):
        ImmutableArgmax(20.0, 10)
    with pytest.raises(ldp.InputError, match="the names are immutable"):
        ldp.allow_unproven("anything")


def test_its_noise_and_what_the_paper_claims_are_those_of_the_plain_maximum(immutable):
    votes = np.random.default_rng(0).multinomial(40, [0.2] * 5, 50)
    for noise, plain in (("laplace", LNMax), ("gaussian", GNMax)):
        m = immutable(20.0, 50, noise, constant=0.0)
        answers, same = m.draw(votes, Seeded(1)), plain(20.0, 50).draw(votes, Seeded(1))
        assert (answers.codes == same.codes).all()
        assert (answers.n_queries, answers.n_answered) == (50, 50)
        assert m.claimed_loss(7) == plain(20.0, 7).loss(7, 7)


@pytest.mark.parametrize("bad", [(0.0, 1e-5, 1, 1), (1.0, 0.0, 1, 1), (1.0, 1e-5, 0, 1), (1.0, 1e-5, 1, 0)])
def test_a_stable_vote_needs_epsilon_delta_queries_and_a_cap(bad):
    with pytest.raises(ldp.InputError):
        StableVote(*bad)
