"""Sums of numbers: how far a label can move them, for every pair of labels; and what is drawn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scripted import Seeded

import labeldp as ldp
from labeldp.mechanisms import LossSum, NoisyMinLoss, NumberSums
from labeldp.privacy.mechanisms import linear, numeric_sums
from labeldp.releases.storage import from_bytes, to_bytes

SPACE = ldp.LabelSpace.range(-2, 2, 0.5)  # nine values
LABELS = np.array([-2.0, 2.0, 0.5, 0.0, -1.5, 2.0])
ROWS = np.array([[1.0, 0.0], [0.6, -0.8], [0.3, 0.1], [0.0, 0.5], [-1.0, 0.0], [0.2, 0.9]])


def vault(epsilon=1.0, delta=0.0, labels=LABELS, space=SPACE):
    return ldp.Vault(labels, space, ldp.Budget(epsilon, delta))


@pytest.fixture
def silent(monkeypatch):
    """Switch the noise off and return the list of requested scales and counts."""
    requests = []

    def nothing(width, count, bits):
        requests.append((float(width), count))
        return np.zeros(count, np.int64)

    for module in (numeric_sums, linear):
        monkeypatch.setattr(module, "discrete_laplace", nothing)
    monkeypatch.setattr(linear, "discrete_gaussian", nothing)
    return requests


def drawn(mechanism, codes, space):
    release_fields = {"space": space, "guarantee": ldp.Guarantee(1.0), "mechanism": "", "n_rows": len(codes)}
    return mechanism.draw(np.asarray(codes), release_fields, Seeded(0))


@settings(max_examples=25, suppress_health_check=[])
@given(
    values=st.integers(2, 12),
    row=st.lists(st.floats(-1, 1).map(lambda x: round(x, 30)), min_size=1, max_size=4),
    delta=st.sampled_from([0.0, 1e-5]),
)
def test_no_label_moves_the_sums_further_than_the_noise_was_measured_for(values, row, delta):
    """Every pair of labels of one row: the squares are part of the move, and cost next to nothing."""
    mechanism = NumberSums(np.array([row]), 1.0, delta, n_values=values)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("discrete_laplace", "discrete_gaussian"):
            patch.setattr(linear, name, lambda width, count, bits: np.zeros(count, np.int64))
        space = ldp.LabelSpace.range(0, values - 1, 1)
        sums = np.array([drawn(mechanism, [code], space).sums for code in range(values)], np.float64)
    moves = sums[:, None, :] - sums
    size = np.sqrt((moves**2).sum(axis=2)) if delta else np.abs(moves).sum(axis=2)
    assert size.max() <= mechanism.sensitivity
    moves = moves[..., :-1]
    alone = np.sqrt((moves**2).sum(axis=2)) if delta else np.abs(moves).sum(axis=2)
    assert mechanism.sensitivity <= max(alone.max(), 2 * (values - 1)) * (1 + 1e-9) + 1


@pytest.mark.parametrize("block", [2, linear.BLOCK_ROWS])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_without_noise_the_sums_are_right(delta, block, silent, monkeypatch):
    monkeypatch.setattr(numeric_sums, "BLOCK_ROWS", block)
    release = vault(1.0, delta).release(NumberSums(ROWS, 1.0, delta, n_values=9))
    assert np.allclose(release.sums[:-1] / release.grid_scale * 0.25, ROWS.T @ LABELS, atol=1e-3)
    assert release.sums[-1] / release.square_weight * 8 * 0.25**2 == pytest.approx((LABELS**2).sum(), abs=1e-2)
    mechanism = NumberSums(ROWS, 1.0, delta, n_values=9)
    assert silent == [(pytest.approx(mechanism.sigma if delta else mechanism.sensitivity / 1.0), 3)]


def test_the_charge_is_the_requested_epsilon():
    pure, gauss = NumberSums(ROWS, 0.7, n_values=9), NumberSums(ROWS, 0.7, 1e-5, n_values=9)
    assert pure.loss(3).epsilon(0.0) == pytest.approx(2.1)
    assert gauss.loss().epsilon(1e-5) <= 0.7
    assert vault(0.7).release(pure).guarantee.epsilon == 0.7


def test_missing_rows_take_no_part(silent):
    space = ldp.LabelSpace.range(-2, 2, 0.5, missing="public")
    labels = [-2.0, None, 0.5, None, None, 2.0]
    release = ldp.Vault(labels, space, ldp.Budget(1.0)).release(NumberSums(ROWS, 1.0, n_values=9))
    here = [0, 2, 5]
    assert release.n_labels == 3
    assert np.allclose(release.gram, ROWS[here].T @ ROWS[here], atol=1e-3)
    assert np.allclose(release.sums[:-1] / release.grid_scale * 0.25, ROWS[here].T @ LABELS[here], atol=1e-3)


def test_a_stored_release_gets_its_rows_back():
    mechanism = NumberSums(ROWS, 3.0, n_values=9)
    release = vault(3.0).release(mechanism)
    again = from_bytes(to_bytes(release))
    assert np.array_equal(again.sums, release.sums)
    with pytest.raises(ldp.InputError, match="give it back by with_query"):
        again.log_evidence()
    assert np.array_equal(mechanism.restore(again).log_evidence(), release.log_evidence())


def law(total, scale, reach):
    """The exact law of total plus discrete Laplace noise, at whole numbers around it."""
    x = np.arange(-reach, reach + 1)
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(x - total).astype(float)


@pytest.mark.parametrize("objective", ["squared", "absolute"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_sum_of_losses_is_private(objective, epsilon, silent):
    """Any two labels of any row: the whole law of the noisy sum stays within exp(epsilon)."""
    predictions = np.array([-2.0, 0.3, 1.1])
    mechanism = LossSum(predictions, epsilon, objective)
    base = [0, 4, 8]
    releases = {}
    for row in range(3):
        for code in range(9):
            codes = np.array(base)
            codes[row] = code
            releases[row, code] = drawn(mechanism, codes, SPACE)
    scale = releases[0, 0].scale
    assert silent[0] == (pytest.approx(scale), 1)
    for row in range(3):
        totals = [releases[row, code].total for code in range(9)]
        assert (max(totals) - min(totals)) / scale <= epsilon * (1 + 1e-9)
    widest = max(np.ptp([releases[row, code].total for code in range(9)]) for row in range(3))
    assert widest / scale > 0.9 * epsilon  # and no more noise than needed
    # The law itself, on a scale where all of it can be listed.
    here, there = law(0, scale / 1024, 2000), law(round(widest / 1024), scale / 1024, 2000)
    assert np.abs(np.log(here / there)).max() <= epsilon * (1 + 1e-2)


def test_without_noise_the_losses_are_right(silent):
    predictions = np.array([-2.0, 0.3, 1.1, 0.0, 0.0, 2.0])
    for objective, lost in (("squared", np.square), ("absolute", np.abs)):
        release = vault(2.0).release(LossSum(predictions, 1.0, objective))
        assert release.total * release.step_size == pytest.approx(lost(predictions - LABELS).sum(), rel=1e-3)
        assert release.max_row_loss == pytest.approx(lost(np.array([4.0]))[0], rel=1e-9)
        assert (release.labels() == -1).all()
        assert (from_bytes(to_bytes(release)).total, release.n_labels) == (release.total, 6)


def test_the_least_loss_wins_where_noise_is_small():
    candidates = np.stack([np.full(6, 2.0), LABELS, np.zeros(6)], axis=1)
    assert vault(1e4).release(NoisyMinLoss(candidates, 1e4)).best_index == 1


def test_the_noise_of_a_choice_is_twice_that_of_a_sum(silent):
    drawn(NoisyMinLoss(np.zeros((3, 2)), 0.5), [0, 4, 8], SPACE)
    assert silent == [(2 * 65536 / 0.5, 2)]


CLASSES = ldp.LabelSpace(["a", "b"])
BAD = {
    "classes": (lambda: NumberSums(np.ones((2, 1)), 1.0, n_values=2), CLASSES, "needs numbers"),
    "values": (lambda: NumberSums(np.ones((6, 1)), 1.0, n_values=5), SPACE, "give n_values=9"),
    "rows": (lambda: NumberSums(np.ones((5, 1)), 1.0, n_values=9), SPACE, "6 rows"),
    "losses of classes": (lambda: LossSum(np.zeros(2), 1.0), CLASSES, "LossSum needs numbers"),
    "outside": (lambda: LossSum(np.full(6, 3.0), 1.0), SPACE, "outside the declared range"),
    "missing": (lambda: LossSum(np.full(6, np.nan), 1.0), SPACE, "outside the declared range"),
    "texts": (lambda: LossSum(np.full(6, "1"), 1.0), SPACE, "a number for each"),
    "two columns": (lambda: LossSum(np.zeros((6, 2)), 1.0), SPACE, "one number for each"),
    "one column": (lambda: NoisyMinLoss(np.zeros(6), 1.0), SPACE, "a column for each candidate"),
    "loss": (lambda: LossSum(np.zeros(6), 1.0, "cubic"), SPACE, '"squared" or "absolute"'),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_cost_nothing(case):
    make, space, message = BAD[case]
    labels = ["a", "b"] if space is CLASSES else LABELS
    opened = vault(labels=labels, space=space)
    with pytest.raises(ldp.InputError, match=message):
        opened.release(make())
    assert not opened.ledger.entries()


@pytest.mark.parametrize("size", [1e200, 6.3e-161])
@pytest.mark.parametrize("make", [numeric_sums.LossSum, numeric_sums.NoisyMinLoss])
def test_losses_that_cannot_be_computed_are_refused(make, size):
    space = ldp.LabelSpace.range(0, 10 * size, size)
    vault = ldp.Vault([0.0, 10 * size], space, ldp.Budget(1.0))
    with pytest.raises(ldp.InputError, match="too large or too small to compute"):
        vault.release(make(np.zeros((2, 1) if make.__name__ == "NoisyMinLoss" else 2), 1.0))
    assert not vault.ledger.entries()


def test_noise_that_cannot_be_drawn_is_refused_before_the_charge():
    space = ldp.LabelSpace.range(0, 20_000, 1)
    vault = ldp.Vault([0.0, 5.0], space, ldp.Budget(1.0))
    with pytest.raises(ldp.InputError, match="cannot be drawn"):
        vault.release(numeric_sums.NumberSums(np.full((2, 256), 1 / 16), 1e-6, n_values=len(space)))
    assert not vault.ledger.entries()


def test_losses_are_counted_in_parts_of_the_largest_that_a_label_can_have(silent):
    """The largest loss is at one end of the range, whichever that is."""
    for end in (-2.0, 2.0):
        assert drawn(LossSum(np.full(2, end), 1.0), [0, 8], SPACE).max_row_loss == 16.0
    narrow = ldp.LabelSpace.range(0, 0.5, 0.1)
    LossSum(np.zeros(2), 1.0).check(narrow, 2)
    LossSum(np.zeros(2, int), 1.0).check(SPACE, 2)


def test_a_correct_prediction_has_no_loss(silent):
    assert drawn(LossSum(LABELS, 1.0), [0, 8, 5, 4, 1, 8], SPACE).total == 0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_sparse_matrix_has_the_sums_of_a_dense_one(silent, delta):
    rows = np.random.default_rng(0).normal(size=(40_000, 6)) * (np.random.default_rng(1).random((40_000, 6)) < 0.3)
    codes = np.arange(40_000) % 10 - 1  # every tenth label is missing
    dense, sparse = (NumberSums(query, 1.0, delta, n_values=9) for query in (rows, csr_array(rows)))
    assert dense.sensitivity == sparse.sensitivity
    one, two = (drawn(mechanism, codes, SPACE) for mechanism in (dense, sparse))
    assert np.array_equal(one.sums, two.sums)
    assert (one.n_labels, one.noise_deviation) == (two.n_labels, two.noise_deviation)
    assert np.allclose(two.released_sums, rows.T @ np.where(codes < 0, 0.0, codes / 2 - 2), atol=0.5)


def test_sparse_sums_of_numbers_are_stored_without_a_gram():
    release = vault(1.0).release(NumberSums(csr_array(ROWS), 0.5, n_values=9))
    again = from_bytes(to_bytes(release))
    assert np.array_equal(again.sums, release.sums)
    with pytest.raises(ldp.InputError, match="not computed for numbers"):
        _ = again.gram


def test_two_values_have_the_noise_of_numbers():
    query = NumberSums(np.eye(3), 1.0, n_values=2)
    assert query.sigma_for(2) == query.sigma
