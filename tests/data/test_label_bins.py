"""The searches against brute force, against linear programming, and against what must hold for any optimum."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog, minimize_scalar

from labeldp.data import label_bins as bins
from labeldp.data.label_bins import optimize_bins, optimize_points

LOSSES = ["squared", "absolute", "poisson"]


def pointwise(loss, v, y):
    if loss == "squared":
        return (v - y) ** 2
    if loss == "absolute":
        return np.abs(v - y)
    return v - y * np.log(np.maximum(v, 1e-300))


def all_cuts(size):
    """Every way to cut 0..size-1 into intervals, as the bin of each value."""
    for count in range(size):
        for cuts in combinations(range(1, size), count):
            yield np.searchsorted(cuts, np.arange(size), "right")


def loss_of(places, outputs, grid, prior, epsilon, loss):
    """Expected loss of randomized response over the bins, straight from its definition."""
    e, k = math.exp(epsilon), len(outputs)
    total = 0.0
    for y, mass, own in zip(grid, prior, places, strict=True):
        for place, v in enumerate(outputs):
            if mass:
                total += mass * (e if place == own else 1) / (e + k - 1) * pointwise(loss, v, y)
    return total


def best_output(weights, grid, loss):
    """The value with the least weighted loss, without knowing that it is a mean or a median."""

    def total(v):
        return float(weights @ pointwise(loss, v, grid))

    found = minimize_scalar(total, bounds=(grid[0], grid[-1]), method="bounded", options={"xatol": 1e-10}).x
    return min([found, *grid], key=total)


def brute_force(grid, prior, epsilon, loss):
    best = math.inf
    for places in all_cuts(len(grid)):
        weights = prior * (1 + math.expm1(epsilon) * (places == np.arange(places.max() + 1)[:, None]))
        outputs = [best_output(w, grid, loss) for w in weights]
        best = min(best, loss_of(places, outputs, grid, prior, epsilon, loss))
    return best


@st.composite
def problems(draw, largest=6):
    size = draw(st.integers(2, largest))
    low = draw(st.sampled_from([0.0, 2.5]))
    weights = np.array(draw(st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any)), float)
    return low + draw(st.sampled_from([1.0, 0.1])) * np.arange(size), weights / weights.sum()


EPSILONS = st.floats(0.02, 8)


@pytest.mark.parametrize("loss", LOSSES)
@given(problems(), EPSILONS)
@settings(max_examples=15)
def test_no_cuts_and_no_outputs_do_better(loss, problem, epsilon):
    found = optimize_bins(*problem, epsilon, loss)
    assert found.loss == pytest.approx(brute_force(*problem, epsilon, loss), abs=1e-6)
    assert found.loss == pytest.approx(loss_of(found.bin_indices, found.outputs, *problem, epsilon, loss), abs=1e-9)


def least_possible(outputs, grid, prior, epsilon, loss):
    """The least expected loss of any epsilon-private mechanism with these outputs, by linear programming.

    Where all entries of a row of the channel lie between t and exp(epsilon) t, its labels are within epsilon.
    """
    k, size = len(outputs), len(grid)
    price = np.concatenate([(prior * pointwise(loss, outputs[:, None], grid)).ravel(), np.zeros(k)])
    each = np.eye(k * size, k * size + k)
    t = np.repeat(np.eye(k), size, axis=0)
    bounds = np.zeros((2 * k * size, k * size + k))
    bounds[: k * size] = -each
    bounds[: k * size, k * size :] += t
    bounds[k * size :] = math.exp(-epsilon) * each
    bounds[k * size :, k * size :] -= t
    sums = np.hstack([np.tile(np.eye(size), k), np.zeros((size, k))])
    found = linprog(price, bounds, np.zeros(len(bounds)), sums, np.ones(size), (0, 1), "highs")
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("loss", LOSSES)
@given(problems(largest=9), st.floats(0.1, 5))
@settings(max_examples=20)
def test_no_mechanism_at_all_does_better(loss, problem, epsilon):
    grid, prior = problem
    found = optimize_bins(grid, prior, epsilon, loss)
    offered = np.unique(np.concatenate([found.outputs, grid[grid > 0], np.linspace(grid[0], grid[-1], 40)[1:]]))
    assert found.loss <= least_possible(offered, grid, prior, epsilon, loss) + 1e-6


@pytest.mark.parametrize("loss", LOSSES)
@given(problems(largest=30), EPSILONS, st.floats(1, 3))
@settings(max_examples=40)
def test_what_holds_for_every_optimum(loss, problem, epsilon, factor):
    grid, prior = problem
    found = optimize_bins(grid, prior, epsilon, loss)
    assert (np.diff(found.outputs) > 0).all()
    assert grid[0] <= found.outputs[0]
    assert found.outputs[-1] <= grid[-1]
    assert np.array_equal(np.unique(found.bin_indices), np.arange(found.outputs.size))
    assert (np.diff(found.bin_indices) >= 0).all()
    alone = min(float(prior @ pointwise(loss, v, grid)) for v in [prior @ grid, *grid[prior > 0]])
    assert found.loss <= alone + 1e-9
    assert optimize_bins(grid, prior, epsilon * factor, loss).loss <= found.loss + 1e-9


def test_the_search_stops_early_without_loss():
    """A range wide enough that the bound ends the search long before every number of bins was tried."""
    generator = np.random.default_rng(0)
    grid, prior = np.arange(40.0), generator.dirichlet(np.full(40, 0.3))
    for epsilon in (0.3, 1.0, 3.0):
        found = optimize_bins(grid, prior, epsilon, "absolute")
        assert found.loss == pytest.approx(least_possible(grid, grid, prior, epsilon, "absolute"), abs=1e-7)


def test_a_large_epsilon_keeps_every_possible_value():
    grid, prior = np.arange(7.0), np.array([1, 0, 2, 1, 0, 0, 4]) / 8
    for loss in LOSSES:
        for epsilon in (60.0, 800.0):
            found = optimize_bins(grid, prior, epsilon, loss)
            assert found.outputs == pytest.approx([0, 2, 3, 6], abs=1e-9)
            assert found.bin_indices[[0, 2, 3, 6]].tolist() == [0, 1, 2, 3]


def test_values_that_the_prior_rules_out_go_to_the_nearer_output():
    prior = np.zeros(11)
    prior[[0, 10]] = 0.5
    assert optimize_bins(np.arange(11.0), prior, 50.0, "squared").bin_indices.tolist() == [0] * 6 + [1] * 5


def test_a_prior_on_one_value_gives_one_bin():
    for loss in LOSSES:
        found = optimize_bins(np.arange(5.0), np.eye(5)[3], 1.0, loss)
        assert found.outputs.tolist() == [3.0]
        assert (found.bin_indices == 0).all()


# Points


def variance_of(points, grid, prior, epsilon):
    """Expected variance of the decoded answer, straight from the channel."""
    e, k, a = math.exp(epsilon), len(points), grid[points]
    responses = (np.ones((k, k)) + math.expm1(epsilon) * np.eye(k)) / (e + k - 1)
    decoded = ((e + k - 1) * a - a.sum()) / math.expm1(epsilon)
    rounding = np.array([np.interp(grid, a, np.eye(k)[j]) for j in range(k)])
    law = responses @ rounding
    assert np.allclose(decoded @ law, grid, atol=1e-9 * max(1, np.abs(decoded).max()))
    return float(prior @ (decoded**2 @ law - grid**2))


def brute_force_points(grid, prior, epsilon):
    inner = range(1, len(grid) - 1)
    sets = [[0, *chosen, len(grid) - 1] for count in range(len(grid) - 1) for chosen in combinations(inner, count)]
    return min(variance_of(points, grid, prior, epsilon) for points in sets)


@given(problems(largest=9), st.floats(0.05, 9))
@example((np.arange(9.0), np.eye(9)[7]), 3.0)
@example((np.arange(9.0), np.eye(9)[0]), 1.0)
@example((np.arange(9.0), np.array([0.9, 0, 0, 0, 0.05, 0, 0, 0, 0.05])), 4.0)
@settings(max_examples=60)
def test_no_points_have_less_variance(problem, epsilon):
    found = optimize_points(*problem, epsilon)
    assert found.variance == pytest.approx(brute_force_points(*problem, epsilon), rel=1e-7, abs=1e-10)
    assert found.variance == pytest.approx(variance_of(found.points, *problem, epsilon), rel=1e-7, abs=1e-10)


@given(problems(largest=30), st.floats(0.05, 9), st.floats(1, 3))
@settings(max_examples=40)
def test_points_hold_both_ends_and_gain_by_epsilon(problem, epsilon, factor):
    grid, prior = problem
    found = optimize_points(grid, prior, epsilon)
    assert found.points[[0, -1]].tolist() == [0, len(grid) - 1]
    assert (np.diff(found.points) > 0).all()
    assert optimize_points(grid, prior, epsilon * factor).variance <= found.variance * (1 + 1e-9)
    assert found.variance <= variance_of(np.array([0, len(grid) - 1]), grid, prior, epsilon) * (1 + 1e-9)


def least_unbiased(outputs, grid, prior, epsilon):
    """The least expected variance of any epsilon-private unbiased mechanism with these outputs, as above but sparse."""
    k, size = len(outputs), len(grid)
    price = np.concatenate([(prior * (outputs[:, None] - grid) ** 2).ravel(), np.zeros(k)])
    each, t = sparse.identity(k * size), sparse.kron(sparse.identity(k), np.ones((size, 1)))
    bounds = sparse.vstack([sparse.hstack([-each, t]), sparse.hstack([math.exp(-epsilon) * each, -t])]).tocsr()
    both = np.vstack([np.ones(k), outputs])  # a law for each label, and its mean
    sums = sparse.hstack([sparse.kron(both, sparse.identity(size)), sparse.csr_matrix((2 * size, k))]).tocsr()
    right = np.concatenate([np.ones(size), grid])
    found = linprog(price, bounds, np.zeros(bounds.shape[0]), sums, right, (0, 1), "highs")
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(("rate", "gap"), [(0, 0.12), (10, 0.025)], ids=["uniform", "skewed"])
def test_points_are_close_to_the_best_unbiased_mechanism(rate, gap, epsilon):
    grid = np.linspace(0, 1, 11)
    prior = np.exp(-rate * grid) / np.exp(-rate * grid).sum()
    found = optimize_points(grid, prior, epsilon)
    a, r = grid[found.points], 1 / math.expm1(epsilon)
    own = (1 + a.size * r) * a - r * a.sum()
    wider = 0.3 * (own[-1] - own[0])
    least = least_unbiased(np.unique([*own, *np.linspace(own[0] - wider, own[-1] + wider, 120)]), grid, prior, epsilon)
    assert (1 - gap) * found.variance <= least <= found.variance * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_the_best_output_of_every_bin_is_a_weighted_median(epsilon):
    """Also of bins that no best cut has, whose median lies outside of them."""
    values, mass = np.array([0.0, 1.0, 2.5, 3.0, 7.0]), np.array([0.3, 0.1, 0.2, 0.15, 0.25])
    cost, output = bins._median_costs(values, mass, epsilon)
    q = math.exp(-epsilon)
    for i, j in combinations(range(6), 2):
        inside = np.zeros(5)
        inside[i:j] = 1
        weight = mass * ((1 - q) * inside + q)
        lost = [weight @ np.abs(v - values) for v in values]
        assert cost[i, j] == pytest.approx(min(lost))
        assert weight @ np.abs(output[i, j] - values) == pytest.approx(min(lost))


@pytest.mark.parametrize(
    ("grid", "prior", "epsilon"),
    [
        ([2, 4, 8, 26, 33, 36], [0.001, 0.001, 0.0786, 0.004, 0.0985, 0.8169], 3.0),
        ([4, 14, 21, 23, 26, 37, 38], [0.002, 0.175, 0.2683, 0.002, 0.2207, 0.002, 0.33], 1.0),
        ([0, 12, 18, 25, 29, 33, 37], [0.0983, 0.001, 0.005, 0.0238, 0.1281, 0.7428, 0.001], 3.0),
        ([16, 22, 23, 36], [0.1306, 0.5972, 0.1306, 0.1416], 1.0),
    ],
)
def test_points_that_the_first_guesses_miss_are_found(grid, prior, epsilon):
    grid, prior = np.array(grid, float), np.array(prior) / np.sum(prior)
    found = optimize_points(grid, prior, epsilon)
    assert found.variance == pytest.approx(brute_force_points(grid, prior, epsilon), rel=1e-7)
