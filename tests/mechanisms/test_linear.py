import math
from fractions import Fraction

import numpy as np
import pytest
from noiselaws import sampled_noise_law

import labeldp as ldp
from labeldp.losses import unit_shift_delta
from labeldp.mechanisms import linear

SPACE = ldp.LabelSpace(["a", "b", "c"])
LABELS = np.array(["a", "b", "c", "a", "a", "b"])
GROUPS = np.array([0, 0, 1, 1, 3, 3])
COUNTS = [[1, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 0]]


def vault(**budget):
    return ldp.Vault(LABELS, SPACE, ldp.Budget(**budget))


@pytest.fixture
def silent(monkeypatch):
    """Noise switched off, with the widths that were asked for."""
    asked = []

    def nothing(width, count, bits):
        asked.append(width)
        return np.zeros(count, np.int64)

    monkeypatch.setattr(linear, "discrete_gaussian", nothing)
    monkeypatch.setattr(linear, "discrete_laplace", nothing)
    return asked


def test_counts(silent):
    release = vault(epsilon=1.0).release(ldp.GroupHistogram(GROUPS, 1.0))
    assert release.counts.tolist() == COUNTS
    assert release.sizes.tolist() == [2, 2, 0, 2]


def test_counts_of_chosen_rows(silent):
    release = vault(epsilon=1.0).release(ldp.GroupHistogram(GROUPS, 1.0), rows=[0, 2])
    assert release.counts.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert release.sizes.tolist() == [1, 1, 0, 0]


def test_the_histogram_is_the_one_hot_case(silent):
    release = vault(epsilon=1.0, delta=1e-5).release(ldp.LinearQuery(np.eye(4)[GROUPS], 1.0, 1e-5))
    assert (release.moments / release.scale).tolist() == COUNTS


@pytest.mark.parametrize("block", [2, linear.BLOCK])
def test_moments_are_exact_on_the_grid(silent, block, monkeypatch):
    monkeypatch.setattr(linear, "BLOCK", block)
    query = np.random.default_rng(0).normal(size=(6, 5))
    release = vault(epsilon=1.0, delta=1e-5).release(ldp.LinearQuery(query, 1.0, 1e-5))
    assert np.allclose(release.moments / release.scale, query.T @ (LABELS[:, None] == list(SPACE)), atol=1e-2)
    assert np.allclose(release.totals, query.sum(axis=0), atol=1e-2)
    assert np.allclose(release.gram, query.T @ query, atol=2e-2)
    assert release.moments.dtype == np.int64


def test_geometric_noise_loses_epsilon_and_no_more(silent):
    assert vault(epsilon=0.5).release(ldp.GroupHistogram(GROUPS, 0.5)).scale == 4.0
    law = sampled_noise_law(silent[0], 20)
    assert 2 * np.abs(np.diff(np.log(law))).max() == pytest.approx(0.5, rel=1e-9)
    assert 2 * np.abs(np.diff(np.log(sampled_noise_law(silent[0] * 99 / 100, 20)))).max() > 0.5025


def test_gaussian_noise_meets_delta_and_hardly_less(silent):
    vault(epsilon=0.5, delta=1e-5).release(ldp.GroupHistogram(GROUPS, 0.5, 1e-5))
    sigma = float(silent[0])
    assert 0.99e-5 < unit_shift_delta(0.5, sigma) <= 1e-5
    assert unit_shift_delta(0.5, 0.99 * sigma) > 1e-5


def test_one_label_moves_the_sums_by_no_more_than_the_sensitivity(silent):
    rng = np.random.default_rng(1)
    query = rng.normal(size=(6, 3)) * rng.uniform(0, 3, size=(6, 1))
    mechanism = ldp.LinearQuery(query, 1.0, 1e-5)
    before = vault(epsilon=1.0, delta=1e-5).release(mechanism).moments
    moves = []
    for row in range(6):
        for label in SPACE:
            changed = LABELS.copy()
            changed[row] = label
            other = ldp.Vault(changed, SPACE, ldp.Budget(1.0, 1e-5)).release(mechanism)
            moves.append(np.linalg.norm(other.moments - before))
    assert mechanism.sensitivity * (1 - 1e-9) <= max(moves) <= mechanism.sensitivity


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-4), (1.0, 1e-6), (5.0, 1e-3)])
def test_lattice_noise_meets_delta_for_integer_moves(epsilon, delta):
    """The law of the loss, <noise, move>, by direct summation for moves of a few coordinates."""
    mechanism = ldp.LinearQuery(np.array([[1.0, 0.5]] * 6), epsilon, delta)
    mechanism.__dict__["scale"] = 3.0  # a coarse grid, where the lattice matters
    step = mechanism._on_grid(mechanism.query[0])
    move = np.concatenate([step, -step])
    assert direct_delta(move.astype(int), mechanism.sigma, epsilon) <= delta


def direct_delta(move, sigma, epsilon):
    reach = math.ceil(9 * sigma)
    grid = np.arange(-reach, reach + 1)
    mass = np.exp(-(grid**2) / (2 * sigma**2))
    mass /= mass.sum()
    product, law = np.array([0]), np.array([1.0])
    for step in move:
        sums = (product[:, None] + step * grid).ravel()
        product, place = np.unique(sums, return_inverse=True)
        law = np.bincount(place, (law[:, None] * mass).ravel())
    loss = (product + move @ move / 2) / sigma**2
    return float((law * np.maximum(0, -np.expm1(epsilon - loss))).sum())


def test_users_move_counts_by_all_their_labels():
    geometric = ldp.GroupHistogram(GROUPS, 0.5)
    assert geometric.loss(3).bound == pytest.approx(1.5)
    gaussian = ldp.GroupHistogram(GROUPS, 0.5, 1e-6)
    assert gaussian.loss(3).sensitivity == pytest.approx(3 * math.sqrt(2))
    assert gaussian.price(3)[0] > 2 * Fraction(1, 2)


def test_noise_differs_between_counts():
    release = vault(epsilon=0.01).release(ldp.GroupHistogram(GROUPS, 0.01))
    assert len(np.unique(release.counts)) > 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(groups=GROUPS, epsilon=1.0, noise="gaussian"), "delta must be"),
        (dict(groups=GROUPS, epsilon=1.0, delta=1e-5, noise="geometric"), "purely private"),
        (dict(groups=GROUPS, epsilon=1.0, noise="uniform"), "noise must be"),
        (dict(groups=GROUPS[:3], epsilon=1.0), "one whole number for each"),
        (dict(groups=GROUPS * 0.5, epsilon=1.0), "one whole number for each"),
        (dict(groups=GROUPS - 1, epsilon=1.0), "Number the groups"),
        (dict(groups=GROUPS * 10**9, epsilon=1.0), "Number the groups"),
    ],
)
def test_bad_histograms(arguments, message):
    with pytest.raises(ldp.InputError, match=message):
        vault(epsilon=1.0, delta=1e-5).release(ldp.GroupHistogram(**arguments))


@pytest.mark.parametrize(
    ("query", "bound", "message"),
    [
        (np.ones((3, 2)), None, "6 rows"),
        (np.full((6, 2), np.nan), None, "missing or infinite"),
        (np.ones((6, 2)), 1.0, "longer than bound"),
        (np.ones((6, 2)), -1.0, "bound must be"),
        (np.full((6, 2), "x"), None, "numbers"),
        (np.full((6, 2), 1e-150), None, "too long or too short"),
        (np.full((6, 2), 1e200), None, "too long or too short"),
    ],
)
def test_bad_queries(query, bound, message):
    with pytest.raises(ldp.InputError, match=message):
        vault(epsilon=1.0, delta=1e-5).release(ldp.LinearQuery(query, 1.0, 1e-5, bound=bound))


def test_without_delta_the_loss_of_the_worst_label_is_epsilon_and_no_more(silent):
    query = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.5, -0.5, 0.7]] * 2)
    mechanism = ldp.LinearQuery(query, 0.5)
    before = vault(epsilon=0.5).release(mechanism).moments
    loss_of_one_step = 1 / float(silent[0])  # P(x) is proportional to exp(-|x| / width)
    worst = 0.0
    for row in range(6):
        for other in SPACE:
            labels = LABELS.copy()
            labels[row] = other
            after = ldp.Vault(labels, SPACE, ldp.Budget(0.5)).release(mechanism).moments
            worst = max(worst, np.abs(after - before).sum() * loss_of_one_step)
    assert worst == pytest.approx(0.5, rel=1e-9)


def test_the_deviation_of_pure_moments_is_that_of_their_noise():
    mechanism = ldp.LinearQuery(np.random.default_rng(0).normal(size=(4000, 30)), 1.0)
    moments = ldp.Vault(["a", "b"] * 2000, ldp.LabelSpace(["a", "b"]), ldp.Budget(1.0)).release(mechanism)
    noise = moments.moments.sum(axis=1) / moments.scale - moments.totals  # of both classes; the sums are public
    assert noise.std() * moments.scale / np.sqrt(2) == pytest.approx(moments.sigma, rel=0.5)
    assert (moments.guarantee.epsilon, moments.guarantee.delta) == (1.0, 0.0)


def test_a_user_with_two_labels_loses_twice_as_much_of_pure_moments():
    people = ldp.Vault(LABELS, SPACE, ldp.Budget(1.0), users=[0, 0, 1, 1, 2, 2])
    assert people.release(ldp.LinearQuery(np.eye(6), 0.5)).guarantee.epsilon == 1.0


def test_a_histogram_that_cannot_be_drawn_is_refused_when_it_is_made():
    with pytest.raises(ldp.InputError, match="delta must be"):
        ldp.GroupHistogram(GROUPS, 1.0, noise="gaussian")
