import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from noiselaws import sampled_noise_law
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix
from scipy.stats import chisquare
from scripted import Seeded

import labeldp as ldp
from labeldp.accounting.losses import unit_shift_delta
from labeldp.mechanisms import GroupHistogram, LinearQuery
from labeldp.privacy.mechanisms import linear
from labeldp.privacy.noise.samplers import laplace_deviation

SPACE = ldp.LabelSpace(["a", "b", "c"])
LABELS = np.array(["a", "b", "c", "a", "a", "b"])
GROUPS = np.array([0, 0, 1, 1, 3, 3])
COUNTS = [[1, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 0]]


def vault(**budget):
    return ldp.Vault(LABELS, SPACE, ldp.Budget(**budget))


@pytest.fixture
def silent(monkeypatch):
    """Switch the noise off and return the list of requested scales."""
    scales = []

    def nothing(width, count, bits):
        scales.append(width)
        return np.zeros(count, np.int64)

    monkeypatch.setattr(linear, "discrete_gaussian", nothing)
    monkeypatch.setattr(linear, "discrete_laplace", nothing)
    return scales


def test_counts(silent):
    release = vault(epsilon=1.0).release(GroupHistogram(GROUPS, 1.0))
    assert release.counts.tolist() == COUNTS
    assert release.sizes.tolist() == [2, 2, 0, 2]


def test_counts_of_chosen_rows(silent):
    release = vault(epsilon=1.0).release(GroupHistogram(GROUPS, 1.0), row_selection=[0, 2])
    assert release.counts.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert release.sizes.tolist() == [1, 1, 0, 0]


def test_the_histogram_is_the_one_hot_case(silent):
    release = vault(epsilon=1.0, delta=1e-5).release(LinearQuery(np.eye(4)[GROUPS], 1.0, 1e-5))
    assert (release.moments / release.grid_scale).tolist() == COUNTS


@pytest.mark.parametrize("block", [2, linear.BLOCK_ROWS])
def test_moments_are_exact_on_the_grid(silent, block, monkeypatch):
    monkeypatch.setattr(linear, "BLOCK_ROWS", block)
    query = np.random.default_rng(0).normal(size=(6, 5))
    release = vault(epsilon=1.0, delta=1e-5).release(LinearQuery(query, 1.0, 1e-5))
    assert np.allclose(release.moments / release.grid_scale, query.T @ (LABELS[:, None] == list(SPACE)), atol=1e-2)
    assert np.allclose(release.totals, query.sum(axis=0), atol=1e-2)
    assert np.allclose(release.gram, query.T @ query, atol=2e-2)
    assert release.moments.dtype == np.int64


def test_geometric_noise_loses_epsilon_and_no_more(silent):
    assert vault(epsilon=0.5).release(GroupHistogram(GROUPS, 0.5)).scale == 4.0
    law = sampled_noise_law(silent[0], 20)
    assert 2 * np.abs(np.diff(np.log(law))).max() == pytest.approx(0.5, rel=1e-9)
    assert 2 * np.abs(np.diff(np.log(sampled_noise_law(silent[0] * 99 / 100, 20)))).max() > 0.5025


def test_gaussian_noise_meets_delta_and_hardly_less(silent):
    vault(epsilon=0.5, delta=1e-5).release(GroupHistogram(GROUPS, 0.5, 1e-5))
    sigma = float(silent[0])
    assert 0.99e-5 < unit_shift_delta(0.5, sigma) <= 1e-5
    assert unit_shift_delta(0.5, 0.99 * sigma) > 1e-5


def test_one_label_moves_the_sums_by_no_more_than_the_sensitivity(silent):
    rng = np.random.default_rng(1)
    query = rng.normal(size=(6, 3)) * rng.uniform(0, 3, size=(6, 1))
    mechanism = LinearQuery(query, 1.0, 1e-5)
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
    mechanism = LinearQuery(np.array([[1.0, 0.5]] * 6), epsilon, delta)
    mechanism.__dict__["grid_scale"] = 3.0  # a coarse grid, where the lattice matters
    step = mechanism._round_to_grid(mechanism.query[0])
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
        product, index = np.unique(sums, return_inverse=True)
        law = np.bincount(index, (law[:, None] * mass).ravel())
    loss = (product + move @ move / 2) / sigma**2
    return float((law * np.maximum(0, -np.expm1(epsilon - loss))).sum())


def test_users_move_counts_by_all_their_labels():
    geometric = GroupHistogram(GROUPS, 0.5)
    assert geometric.loss(3).bound == pytest.approx(1.5)
    gaussian = GroupHistogram(GROUPS, 0.5, 1e-6)
    assert gaussian.loss(3).sensitivity == pytest.approx(3 * math.sqrt(2))
    assert gaussian.price(3)[0] > 2 * Fraction(1, 2)


def test_noise_differs_between_counts():
    release = vault(epsilon=0.01).release(GroupHistogram(GROUPS, 0.01))
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
        vault(epsilon=1.0, delta=1e-5).release(GroupHistogram(**arguments))


@pytest.mark.parametrize(
    ("query", "bound", "message"),
    [
        (np.ones((3, 2)), None, "6 rows"),
        (np.full((6, 2), np.nan), None, "missing or infinite"),
        (np.ones((6, 2)), 1.0, "longer than max_row_norm"),
        (np.ones((6, 2)), -1.0, "max_row_norm must be"),
        (np.full((6, 2), "x"), None, "numbers"),
        (np.full((6, 2), 1e-150), None, "too long or too short"),
        (np.full((6, 2), 1e200), None, "too long or too short"),
    ],
)
def test_bad_queries(query, bound, message):
    with pytest.raises(ldp.InputError, match=message):
        vault(epsilon=1.0, delta=1e-5).release(LinearQuery(query, 1.0, 1e-5, max_row_norm=bound))


def test_without_delta_the_loss_of_the_worst_label_is_epsilon_and_no_more(silent):
    query = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.5, -0.5, 0.7]] * 2)
    mechanism = LinearQuery(query, 0.5)
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
    """Of three classes, noise is what the sum over classes has beyond the public total."""
    mechanism = LinearQuery(np.random.default_rng(0).normal(size=(4000, 300)), 1.0)
    moments = ldp.Vault(["a", "b", "c", "a"] * 1000, SPACE, ldp.Budget(1.0)).release(mechanism)
    noise = moments.moments.sum(axis=1) / moments.grid_scale - moments.totals
    assert noise.std() * moments.grid_scale / np.sqrt(3) == pytest.approx(moments.sigma, rel=0.25)
    assert (moments.guarantee.epsilon, moments.guarantee.delta) == (1.0, 0.0)


# Two classes without delta: noise in one column


TWO = ldp.LabelSpace(["a", "b"])
ROWS_OF_TWO = np.array([[1.0, -0.5], [0.25, 0.75], [0.0, 0.0]])


def coarse(query, epsilon, scale=4.0):
    """Sums on a grid so coarse that the law of their noise can be summed out."""
    mechanism = LinearQuery(query, epsilon)
    mechanism.__dict__["grid_scale"] = scale
    return mechanism


def pair_of(mechanism, codes, bits=None):
    release_fields = dict(space=TWO, guarantee=None, mechanism="", n_rows=len(codes))
    return mechanism.draw(np.array(codes, np.int8), release_fields, bits).moments


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_of_two_classes_the_released_pair_has_one_noise_and_loses_epsilon(silent, epsilon):
    """The law of the pair is that of its second column: exact ratios of all outcomes between all neighbours."""
    mechanism = coarse(ROWS_OF_TWO, epsilon)
    sums = {codes: pair_of(mechanism, codes) for codes in product([0, 1], repeat=3)}
    width = silent[0]
    assert set(silent) == {width}
    assert float(width) == 6 / epsilon  # the first row is (4, -2) on the grid

    def worst(width):
        """The largest log-ratio of any outcome: each coordinate has its own noise, and its most likely shift."""
        law = np.log(sampled_noise_law(width, 30))
        losses = []
        for one, other in product(sums, repeat=2):
            if sum(np.not_equal(one, other)) == 1:
                steps = np.abs(sums[one][:, 1] - sums[other][:, 1])
                losses.append(sum(np.abs(law[s:] - law[: law.size - s]).max() for s in steps))
        return max(losses)

    assert worst(width) == pytest.approx(epsilon, rel=1e-9)
    assert worst(width * 99 / 100) > 1.009 * epsilon  # noise that is 1 % too small


@pytest.mark.parametrize("make", [np.asarray, csr_array])
def test_of_two_classes_the_code_draws_that_law_and_the_exact_rest(make):
    mechanism, codes, bits = coarse(make(ROWS_OF_TWO[:, :1]), 2.0), [1, 0, 1], Seeded(0)
    total = 5  # 4 + 1 + 0 steps
    drawn = np.array([pair_of(mechanism, codes, bits)[0] for _ in range(4000)])
    assert (drawn.sum(axis=1) == total).all()
    noise = drawn[:, 1] - 4  # of the rows of the second class
    law = sampled_noise_law(Fraction(2), 60)
    seen = np.bincount(np.clip(noise, -8, 8) + 8, minlength=17)
    cells = np.array([law[:53].sum(), *law[53:68], law[68:].sum()])
    assert chisquare(seen, 4000 * cells / cells.sum()).pvalue > 1e-4


def test_of_two_classes_sigma_is_the_projected_noise(silent):
    """sigma^2 (I - 11'/2) must be the covariance of (n, -n): sigma is sqrt(2) times the deviation of n."""
    mechanism = LinearQuery(np.random.default_rng(0).normal(size=(6, 3)), 1.0)
    labels = np.where(LABELS == "c", "b", LABELS)
    two = ldp.Vault(labels, TWO, ldp.Budget(1.0)).release(mechanism)
    assert two.sigma == pytest.approx(2**0.5 * laplace_deviation(1 / float(silent[0])))
    assert two.sigma == mechanism.sigma_for(2) == pytest.approx(mechanism.sigma / 2**0.5, rel=1e-6)
    three = vault(epsilon=1.0).release(mechanism)
    assert three.sigma == mechanism.sigma_for(3) == mechanism.sigma
    assert silent[1] == 2 * silent[0]
    gaussian = LinearQuery(np.ones((6, 2)), 1.0, 1e-6)
    assert gaussian.sigma_for(2) == gaussian.sigma


def test_of_two_classes_missing_labels_take_no_part_in_totals(silent):
    for make in (np.asarray, csr_array):
        space = ldp.LabelSpace(["a", "b"], missing="public")
        query = np.array([[1.0, 2.0], [4.0, 8.0], [16.0, 32.0], [64.0, 128.0]])
        release = ldp.Vault(["a", None, "b", "a"], space, ldp.Budget(1.0)).release(
            LinearQuery(make(query), 1.0), row_selection=[0, 1, 2]
        )
        assert np.allclose(release.moments / release.grid_scale, [[1, 16], [2, 32]], atol=0.05)
        assert np.allclose(release.totals, [17, 34], atol=0.1)


# Sparse queries


def sparse_query(rows=40, columns=7, seed=0):
    generator = np.random.default_rng(seed)
    dense = generator.normal(size=(rows, columns)) * (generator.random((rows, columns)) < 0.4)
    dense[3] = 0
    return dense


@pytest.mark.parametrize("block", [3, linear.BLOCK_ROWS])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("classes", [2, 3])
def test_sparse_sums_are_those_of_the_dense_matrix(silent, monkeypatch, block, delta, classes):
    monkeypatch.setattr(linear, "BLOCK_ROWS", block)
    query, space = sparse_query(), ldp.LabelSpace(list(range(classes)), missing="public")
    labels = np.random.default_rng(1).integers(0, classes, 40)
    mine = ldp.Vault([None if i % 7 == 0 else each for i, each in enumerate(labels)], space, ldp.Budget(2.0, 1e-4))
    dense, sparse = (LinearQuery(make(query), 1.0, delta) for make in (np.asarray, csr_array))
    assert (sparse.grid_scale, sparse.sensitivity) == pytest.approx((dense.grid_scale, dense.sensitivity), rel=1e-12)
    one, other = mine.release(dense), mine.release(sparse)
    assert np.array_equal(one.moments, other.moments)
    assert np.allclose(one.totals, other.totals, rtol=1e-12)
    assert one.sigma == pytest.approx(other.sigma, rel=1e-12)
    assert other.stored_gram is None
    assert np.allclose(one.gram, other.gram)
    assert np.allclose(one.log_evidence(), other.log_evidence(), atol=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_rows_are_measured_after_duplicates_are_summed_and_entries_rounded(delta, silent):
    """Five entries of one cell, of 0.3 steps each: rounded one by one they would vanish."""
    cell_indices = ([0] * 5 + [1, 1], [0] * 5 + [0, 1])
    query = coo_array(([0.3] * 5 + [1.0, 1.0], cell_indices), shape=(6, 2))
    mechanism = LinearQuery(query, 1.0, delta)
    mechanism.__dict__["grid_scale"] = 1.0
    assert mechanism.sensitivity == pytest.approx((2**0.5 if delta else 2) * 2, rel=1e-9)
    assert np.array_equal(mechanism.query.toarray()[:2], [[1.5, 0], [1, 1]])
    mine = vault(epsilon=1.0, delta=1e-4).release(mechanism)
    assert mine.moments.tolist() == [[2, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_no_label_moves_sparse_sums_further_than_their_sensitivity(silent, delta):
    generator = np.random.default_rng(2)
    cell_indices = generator.integers(0, 6, 30), generator.integers(0, 4, 30)  # with duplicates
    mechanism = LinearQuery(coo_array((generator.normal(size=30), cell_indices), shape=(6, 4)), 1.0, delta)
    norm = 2 if delta else 1
    before, moves = vault(epsilon=1.0, delta=1e-4).release(mechanism).moments, []
    for row, label in product(range(6), SPACE):
        changed = LABELS.copy()
        changed[row] = label
        other = ldp.Vault(changed, SPACE, ldp.Budget(1.0, 1e-4)).release(mechanism).moments
        moves.append(np.linalg.norm((other - before).ravel(), norm))
    assert mechanism.sensitivity * (1 - 1e-9) <= max(moves) <= mechanism.sensitivity


def test_outdated_format_flags_of_a_matrix_are_not_trusted():
    """SciPy's cached flag of a matrix can be outdated: here the flag states that there are no duplicates."""
    query = csr_array((np.array([3.0, 4.0]), np.array([0, 1]), np.array([0, 2, 2])), shape=(2, 2))
    query.sum_duplicates()
    query.indices[1] = 0
    assert query.has_canonical_format
    mechanism = LinearQuery(query, 1.0, 1e-5)
    assert mechanism.query.toarray().tolist() == [[7, 0], [0, 0]]
    assert mechanism.sensitivity == pytest.approx(2**0.5 * linear.GRID_STEPS)


def test_the_private_copy_is_frozen_and_shares_nothing(silent):
    query = csr_array(sparse_query(6))
    mechanism = LinearQuery(query, 1.0)
    frozen = mechanism.query
    for name in ("data", "indices", "indptr"):
        assert not np.shares_memory(getattr(frozen, name), getattr(query, name))
        with pytest.raises(ValueError, match="read-only"):
            getattr(frozen, name)[0] = 1
    released = vault(epsilon=1.0).release(mechanism).query
    released.data = 9 * released.data
    assert np.array_equal(mechanism.query.toarray(), query.toarray())


def test_requests_of_sparse_matrices_differ_with_each_part():
    base = np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 0.0]])
    same = [csr_array(base), csc_array(base), csr_matrix(base), coo_array(base)]
    doubled = coo_array(([1.0, 1.0, 1.0, 3.0, 0.0], ([0, 0, 0, 1, 1], [0, 1, 1, 1, 2])), shape=(2, 3))
    seen = [repr(LinearQuery(each, 1.0).parameters()["query"]) for each in (*same, doubled)]
    assert len(set(seen)) == 1
    moved = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    other_row = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 3.0, 0.0]])
    others = [2 * base, moved, np.pad(base, ((0, 0), (0, 1))), np.pad(base, ((0, 1), (0, 0))), other_row]
    digests = {repr(LinearQuery(csr_array(each), 1.0).parameters()["query"]) for each in others}
    halves = LinearQuery(csr_array(base.astype(np.float32)), 1.0).parameters()["query"]
    assert len({*seen, *digests, repr(halves)}) == 7
    assert seen[0] != repr(LinearQuery(base, 1.0).parameters()["query"])


@pytest.mark.parametrize("small", [np.int8, np.uint8])
def test_whole_numbers_do_not_overflow_when_duplicates_are_summed(small):
    query = coo_array((np.array([100, 100, 100], small), ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    assert LinearQuery(query, 1.0).query.toarray().tolist() == [[200, 0], [0, 100]]


def broken_csr():
    query = csr_array(np.eye(6))
    query.indices[2] = 77
    return query


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: csr_array(np.ones((3, 2))), "6 rows"),
        (lambda: csr_array(np.full((6, 2), np.nan)), "missing or infinite"),
        (lambda: csr_array(np.full((6, 2), np.inf)), "missing or infinite"),
        (lambda: csr_array(np.full((6, 2), 1e200)), "too long or too short"),
        (lambda: csr_array(np.ones((6, 2), bool)), "whole numbers or floats"),
        (lambda: csr_array(np.ones((6, 2), complex)), "whole numbers or floats"),
        (lambda: coo_array(np.ones(6)), "rows and columns"),
        (broken_csr, "damaged"),
    ],
)
def test_bad_sparse_queries_cost_nothing(make, message):
    mine = vault(epsilon=1.0, delta=1e-5)
    with pytest.raises(ldp.InputError, match=message):
        mine.release(LinearQuery(make(), 1.0, 1e-5))
    assert not mine.ledger.entries()


def test_a_sparse_row_longer_than_its_bound_is_refused():
    with pytest.raises(ldp.InputError, match="longer than max_row_norm"):
        vault(epsilon=1.0).release(LinearQuery(csr_array(np.ones((6, 2))), 1.0, max_row_norm=1.0))


def test_a_repeated_sparse_request_comes_back_with_its_query(silent):
    mine, query = vault(epsilon=1.0), csr_array(sparse_query(6))
    first, second = (mine.release(LinearQuery(query, 1.0)) for _ in range(2))
    assert first.entry == second.entry
    assert np.array_equal(first.log_evidence(), second.log_evidence())


def test_a_user_with_two_labels_loses_twice_as_much_of_pure_moments():
    people = ldp.Vault(LABELS, SPACE, ldp.Budget(1.0), users=[0, 0, 1, 1, 2, 2])
    assert people.release(LinearQuery(np.eye(6), 0.5)).guarantee.epsilon == 1.0


def test_a_histogram_that_cannot_be_drawn_is_refused_when_it_is_made():
    with pytest.raises(ldp.InputError, match="delta must be"):
        GroupHistogram(GROUPS, 1.0, noise="gaussian")
