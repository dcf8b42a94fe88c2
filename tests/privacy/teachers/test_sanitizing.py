import math
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from scripted import Seeded
from votelaws import divergence, law_of, neighbors

import labeldp as ldp
from labeldp.mechanisms import ConfidentGNMax, GNMax, LNMax
from labeldp.privacy.teachers import sanitizing as sanitizing
from labeldp.privacy.teachers.sanitizing import (
    SanitizerSettings,
    _BoxMaxima,
    _collect_states,
    _largest_change,
    default_settings,
    sanitize,
)
from labeldp.privacy.teachers.vote_accounting import (
    account_votes,
    difference_tail,
    gaussian_rdp,
    laplace_rdp,
    log_wrong_probability,
)

NOISY = [GNMax(2.0, 9), LNMax(2.0, 9), ConfidentGNMax(5, 2.0, 2.0, 9, 9)]
ALL = [v for v in product(range(8), repeat=3) if sum(v) == 7]
ORDER = 4.0


def cost(mechanism, *queries):
    return _collect_states(np.array(queries), mechanism, ORDER)


@pytest.mark.parametrize("mechanism", NOISY, ids=repr)
def test_the_cost_is_never_below_the_true_divergence(mechanism):
    for votes in ALL:
        bound, law = cost(mechanism, votes).cost, law_of(votes, mechanism)
        for other in neighbors(votes):
            assert divergence(law, law_of(other, mechanism), ORDER) <= bound * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("mechanism", NOISY, ids=repr)
@pytest.mark.parametrize("cells", [256, 5])
def test_the_sensitivity_is_smooth_and_bounds_every_change(mechanism, cells, monkeypatch):
    monkeypatch.setattr(sanitizing, "_BLOCKS_PER_SIDE", cells)
    smoothness = 0.1
    known = {v: cost(mechanism, v) for v in ALL}
    sensitivity = {v: states.smooth_sensitivity(smoothness) for v, states in known.items()}
    for votes, states in known.items():
        for other in map(tuple, neighbors(votes)):
            assert abs(known[other].cost - states.cost) <= sensitivity[votes] + 1e-12
            assert sensitivity[other] <= math.exp(smoothness) * sensitivity[votes] + 1e-12


def test_several_queries_change_at_once():
    mechanism = NOISY[0]
    one, two = ALL[3], ALL[20]
    both = cost(mechanism, one, two, two)
    assert both.cost == pytest.approx(cost(mechanism, one).cost + 2 * cost(mechanism, two).cost)
    for first, second in product(neighbors(one), neighbors(two)):
        other = cost(mechanism, first, second, second)
        assert abs(other.cost - both.cost) <= both.smooth_sensitivity(0.1) + 1e-12


@pytest.mark.parametrize(
    "setting",
    [SanitizerSettings(4.0, 0.02, 3.0), SanitizerSettings(10.0, 0.01, 12.0), SanitizerSettings(2.0, 0.1, 2.0)],
)
def test_the_own_cost_bounds_the_divergence_of_normal_laws(setting):
    margin, a = 3.0, setting.order
    stated = setting.own_cost(margin)
    for ratio, change in product((-1.0, 0.0, 1.0), (-1.0, 1.0)):
        wide = math.exp(ratio * setting.smoothness)  # the neighbour's sensitivity, ours being 1
        change *= min(1.0, wide)
        mean = change + setting.width * margin * (wide - 1)
        ours, theirs = setting.width, setting.width * wide

        def inside(x, mean=mean, ours=ours, theirs=theirs):
            p = -0.5 * (x / ours) ** 2 - math.log(ours)
            q = -0.5 * ((x - mean) / theirs) ** 2 - math.log(theirs)
            return math.exp(a * p + (1 - a) * q) / math.sqrt(2 * math.pi)

        total = quad(inside, -60 * ours, 60 * ours, points=[0.0], limit=400)[0]
        assert math.log(total) / (a - 1) <= stated


def test_too_much_smoothness_has_no_bound():
    assert SanitizerSettings(10.0, 0.1, 3.0).own_cost(4.0) == math.inf


def test_boxes_hold_their_largest_value():
    generator = np.random.default_rng(0)
    for shape in ((1, 1), (1, 9), (6, 13), (8, 8)):
        table = generator.random(shape)
        boxes = _BoxMaxima(table)
        for _ in range(50):
            corners = np.sort(generator.integers(0, shape, (2, 2)), axis=0)
            (a, b), (c, d) = corners
            assert boxes.box_maximum(corners[:1], corners[1:])[0] == table[a : c + 1, b : d + 1].max()


LARGE = 20 * np.random.default_rng(1).multinomial(250, [0.8] + [0.05] * 4, 200)


@pytest.mark.parametrize("mechanism", [GNMax(200.0, 200), LNMax(150.0, 200)], ids=repr)
def test_the_figure_is_above_the_secret_one_and_below_the_data_independent_one(mechanism):
    result = account_votes(LARGE, mechanism, 1e-5)
    drawn = [sanitize(result, LARGE, mechanism, bits=Seeded(seed)).epsilon_sanitized for seed in range(8)]
    assert len(set(drawn)) > 4
    assert all(result.epsilon_data_dependent < figure < result.epsilon_data_independent for figure in drawn)
    assert result.publishable == ("epsilon_data_independent",)
    assert sanitize(result, LARGE, mechanism).publishable == ("epsilon_sanitized",)


def test_a_confident_vote_is_sanitized_for_all_of_its_queries():
    votes, mechanism = LARGE // 20, ConfidentGNMax(180, 40.0, 20.0, 200, 50)
    result = account_votes(votes, mechanism, 1e-5)
    figure = sanitize(result, votes, mechanism, order=6.0, bits=Seeded(0)).epsilon_sanitized
    assert figure > result.epsilon_data_dependent


def test_settings_come_from_public_facts():
    setting = default_settings(GNMax(40.0, 1), 1000, 1e-5)
    assert setting == default_settings(GNMax(40.0, 99), 1000, 1e-5)
    assert default_settings(GNMax(40.0, 1), 1000, 1e-5, 12.0).order == 12.0
    for bad in (1.0, 1e5, math.nan, True):
        with pytest.raises(ldp.InputError, match="order must be"):
            default_settings(GNMax(40.0, 1), 1000, 1e-5, bad)


def test_the_number_of_teachers_must_be_public():
    votes = np.array([[5, 1], [5, 2]])
    result = account_votes(votes, GNMax(2.0, 2), 1e-5)
    with pytest.raises(ldp.InputError, match="same number of votes"):
        sanitize(result, votes, GNMax(2.0, 2))
    votes = np.array([[50_000, 1], [1, 50_000]])
    with pytest.raises(ldp.InputError, match="at most 20000 teachers"):
        sanitize(account_votes(votes, GNMax(2.0, 2), 1e-5), votes, GNMax(2.0, 2))


@pytest.mark.parametrize("mechanism", [GNMax(200.0, 200), LNMax(150.0, 200)], ids=repr)
def test_the_figure_covers_the_true_cost_unless_noise_is_below_its_quantile(mechanism, monkeypatch):
    """Half of delta is for noise that falls below its quantile, half for the conversion to epsilon."""
    delta = 1e-3
    lowest = int(norm.ppf(delta / 2) * 2**46)
    monkeypatch.setattr(sanitizing, "discrete_gaussian", lambda sigma, count, bits: np.array([lowest]))
    result = account_votes(LARGE, mechanism, delta, conversion="classic")
    figure = sanitize(result, LARGE, mechanism).epsilon_sanitized
    setting = default_settings(mechanism, 200, delta)
    true = _collect_states(LARGE, mechanism, setting.order).cost + setting.own_cost(norm.isf(delta / 2))
    exact = true + math.log(2 / delta) / (setting.order - 1)
    assert exact <= figure <= exact + 2e-4


@pytest.mark.parametrize("mechanism", NOISY[:2], ids=repr)
def test_the_cost_of_a_query_is_not_below_the_bound_at_its_own_chance(mechanism):
    """The chance that the noisy maximum is not the winner is rounded up to a rung, never down."""
    by_chance = laplace_rdp if isinstance(mechanism, LNMax) else gaussian_rdp
    strict = 0
    for votes in ALL:
        log_q = log_wrong_probability(np.array([votes]), mechanism)
        noise = mechanism.scale if isinstance(mechanism, LNMax) else mechanism.sigma
        exact = by_chance(log_q, noise, np.array([ORDER]))[0, 0]
        assert cost(mechanism, votes).cost >= exact * (1 - 1e-9)
        strict += exact < by_chance(np.zeros(1), noise, np.array([ORDER]))[0, 0]
    assert strict > 3  # where votes matter at all


def test_a_change_counts_to_either_side():
    """One label may lower the cost of its neighbour as well as raise it."""
    bounds = np.random.default_rng(0).random((5, 40))
    change = _largest_change(bounds)
    for i, j in product(range(5), range(40)):
        near = bounds[max(i - 1, 0) : i + 2, max(j - sanitizing._MAX_RUNG_MOVE, 0) : j + sanitizing._MAX_RUNG_MOVE + 1]
        assert change[i, j] == np.abs(near - bounds[i, j]).max()


@pytest.mark.parametrize(("order", "log_ratio"), [(4.0, 0.02), (4.0, -0.02), (10.0, -0.01), (2.0, 0.1)])
def test_the_cost_of_another_width_is_the_divergence_of_normal_laws(order, log_ratio):
    wide = math.exp(log_ratio)

    def inside(x):
        return math.exp(-order * x**2 / 2 - (1 - order) * (x / wide) ** 2 / 2) / wide ** (1 - order)

    true = math.log(quad(inside, -40, 40, points=[0.0], limit=400)[0] / math.sqrt(2 * math.pi)) / (order - 1)
    assert SanitizerSettings(order, 0.1, 1.0)._scale_divergence(log_ratio) == pytest.approx(true, rel=1e-6)


def test_settings_hold_for_small_orders_and_wide_noise():
    assert default_settings(GNMax(40.0, 1), 1000, 1e-5, 1.5).order == 1.5
    assert default_settings(GNMax(1e5, 1), 1, 1e-5).width == 32.0


def test_one_query_is_sanitized():
    votes = LARGE[:1]
    result = account_votes(votes, GNMax(200.0, 1), 1e-5)
    assert sanitize(result, votes, GNMax(200.0, 1)).epsilon_sanitized > 0


def test_the_bound_of_a_confident_vote_is_the_divergence_of_test_and_maximum():
    """Each largest count against its neighbors, with the exact chances of the test."""
    mechanism, maximum = ConfidentGNMax(5, 2.0, 2.0, 9, 9), np.array([0.0, 0.3, 1.0])
    x = np.arange(-80, 81)
    mass = np.exp(-(x**2) / 8)
    mass /= mass.sum()

    def chance(count):
        yes = mass[x >= 5 - count].sum()
        return yes, mass[x < 5 - count].sum()

    found = sanitizing._confident_bounds(maximum, mechanism, np.arange(2, 9), ORDER)
    for place, count in enumerate(range(2, 9)):
        for rung, own in enumerate(maximum):
            worst = 0.0
            for other in (count - 1, count, count + 1):
                (yes, no), (yes_there, no_there) = chance(count), chance(other)
                answered = yes**ORDER * yes_there ** (1 - ORDER) * math.exp((ORDER - 1) * own)
                worst = max(worst, math.log(answered + no**ORDER * no_there ** (1 - ORDER)) / (ORDER - 1))
            assert 0 <= found[place, rung] - worst <= 2e-8
            assert found[place, rung] - worst >= 2e-9 * ORDER * 0.5


@pytest.mark.parametrize("mechanism", NOISY, ids=repr)
def test_the_smooth_sensitivity_is_the_largest_discounted_change_within_reach(mechanism):
    """The same by a plain search: all states within d moves, for every d. Queries add up."""
    for votes in ALL[::5]:
        states = cost(mechanism, votes)
        (count, rung), (rows, rungs) = states.positions[0], states.changes.shape
        assert states.block_shape == (1, 1)
        discounted = []
        for d in range(rows + rungs):
            far = d * sanitizing._MAX_RUNG_MOVE
            near = states.changes[max(count - d, 0) : count + d + 1, max(rung - far, 0) : rung + far + 1]
            discounted.append(math.exp(-0.1 * d) * near.max())
        assert states.smooth_sensitivity(0.1) == pytest.approx(max(discounted), rel=1e-12)
        many = cost(mechanism, *[votes] * 100)
        assert many.smooth_sensitivity(0.1) == pytest.approx(100 * max(discounted), rel=1e-9)


@pytest.mark.parametrize("mechanism", NOISY[:2], ids=repr)
def test_a_chance_is_rounded_up_by_a_quarter_of_a_step_at_most(mechanism):
    by_chance = laplace_rdp if isinstance(mechanism, LNMax) else gaussian_rdp
    tail = np.exp(difference_tail(mechanism, 20))
    for least in range(7):
        lead = 14 - 2 * least + 1  # votes go to the first of two classes, and ties, too
        rounded = np.log(0.75 * tail[lead] + 0.25 * tail[lead - 1]) + 1e-8
        limit = by_chance(np.array([rounded]), 2.0, np.array([ORDER]))[0, 0]
        assert cost(mechanism, (14 - least, least)).cost <= limit * (1 + 1e-9)


def test_every_width_is_the_best_for_some_noise():
    found = {default_settings(GNMax(s, 1), n, 1e-5).width for s in np.geomspace(2, 1e4, 40) for n in (1, 100)}
    assert found <= {2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0}
    assert found >= {4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0}


def test_the_change_of_a_state_is_that_of_its_own_row(monkeypatch):
    """States are worked on in slabs, with a row more on either side, which counts as a neighbour alone."""
    table = np.random.default_rng(0).random((8, 256))
    monkeypatch.setattr(
        sanitizing, "_confident_bounds", lambda maximum, m, counts, order: table[counts, : maximum.size]
    )
    states = cost(NOISY[2], (7, 0, 0))
    assert np.array_equal(states.changes, _largest_change(table[:, : states.changes.shape[1]]))
