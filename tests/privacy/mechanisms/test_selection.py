import math
from itertools import product

import numpy as np
import pytest
from countlaws import noise_law, winners
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from scripted import Seeded

import labeldp as ldp
from labeldp.mechanisms import BestCandidate, CorrectCount, HighestScore
from labeldp.privacy.mechanisms import selection
from labeldp.releases import Choice, NoisyCorrectCount

SPACE = ldp.LabelSpace(["a", "b", "c"])
LABELS = np.array(["a", "b", "c", "a", "a", "b"])
CODES = np.array([0, 1, 2, 0, 0, 1])
EPSILONS = [0.1, 0.5, 1.0, 3.0]


def vault(labels=LABELS, epsilon=1.0, **more):
    return ldp.Vault(labels, SPACE, ldp.Budget(epsilon), **more)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("counts", [[3, 3], [4, 4, 4], [5, 3, 4, 4], [0, 6, 6, 6], [7, 6, 1], [30, 2, 2]])
def test_no_outcome_is_more_than_exp_epsilon_likelier_on_a_neighbour(counts, epsilon):
    law = winners(counts, epsilon)
    assert law.sum() == pytest.approx(1, abs=1e-9)
    for move in product([-1, 0, 1], repeat=len(counts)):
        other = winners(np.add(counts, move), epsilon)
        assert np.abs(np.log(other / law)).max() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_bound_is_nearly_reached(epsilon):
    far = math.ceil(12 / epsilon)
    law, other = winners([0, far], epsilon), winners([1, far - 1], epsilon)
    assert np.log(other / law).max() > 0.75 * epsilon
    alone = [far] * 12
    law, other = winners([0, *alone], epsilon), winners([1, *np.subtract(alone, 1)], epsilon)
    assert 0.97 * epsilon < np.log(other / law).max() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_code_draws_from_that_law(epsilon):
    predictions = np.array([[0, 1, 0], [1, 1, 0], [2, 0, 2], [1, 0, 0], [1, 0, 1], [1, 1, 0]])
    right = (predictions == CODES[:, None]).sum(axis=0)
    assert right.tolist() == [4, 4, 3]
    mechanism, bits = BestCandidate(predictions, epsilon), Seeded(0)
    release = vault().release(ldp.RandomizedResponse(1.0))
    release_fields = dict(space=SPACE, guarantee=release.guarantee, mechanism="", n_rows=6)
    drawn = np.bincount([mechanism.draw(CODES, release_fields, bits).best_index for _ in range(3000)], minlength=3)
    assert chisquare(drawn, 3000 * winners(right, epsilon)).pvalue > 1e-4


@pytest.fixture
def silent(monkeypatch):
    """Switch the noise off and return the list of requested scales and counts."""
    requests = []

    def nothing(width, count, bits):
        requests.append((width, count))
        return np.zeros(count, np.int64)

    monkeypatch.setattr(selection, "discrete_laplace", nothing)
    return requests


def test_correct_predictions_are_counted(silent):
    release = vault().release(CorrectCount(np.array([0, 1, 1, 1, 0, 0]), 0.5))
    assert isinstance(release, NoisyCorrectCount)
    assert (release.n_correct, release.n_labels, release.scale) == (3, 6, 2.0)
    part = vault().release(CorrectCount(np.array([0, 1, 1, 1, 0, 0]), 0.5), row_selection=[1, 2])
    assert (part.n_correct, part.n_labels) == (1, 2)
    assert silent == [(2, 1), (2, 1)]


def test_the_first_of_equals_wins_without_noise(silent):
    right, wrong = CODES, (CODES + 1) % 3
    assert vault().release(BestCandidate(np.stack([wrong, right, right], axis=1), 0.5)).best_index == 1
    assert vault().release(BestCandidate(np.stack([right, wrong, right], axis=1), 0.5)).best_index == 0
    assert silent == [(4, 3), (4, 3)]


@settings(max_examples=60)
@given(st.integers(0, 5), st.sampled_from(list(SPACE)), st.integers(0, 10**6))
def test_a_label_moves_each_count_by_one_at_most(row, label, seed):
    predictions = np.random.default_rng(seed).integers(0, 3, (6, 4))
    other = CODES.copy()
    other[row] = list(SPACE).index(label)
    moved = (predictions == CODES[:, None]).sum(axis=0) - (predictions == other[:, None]).sum(axis=0)
    assert np.abs(moved).max() <= 1


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_count_loses_epsilon_and_no_more(epsilon):
    law = noise_law(CorrectCount(CODES, epsilon).epsilon ** -1, 30)[1]
    assert np.abs(np.diff(np.log(law))).max() == pytest.approx(epsilon, rel=1e-9)


def test_missing_labels_never_count_as_correct():
    space = ldp.LabelSpace(["a", "b"], missing="public")
    labels = ["a", None, "b", None]
    release = ldp.Vault(labels, space, ldp.Budget(100.0)).release(CorrectCount(np.zeros(4, int), 100.0))
    assert (release.n_correct, release.n_labels) == (1, 2)


@pytest.mark.parametrize("make", [lambda e: CorrectCount(CODES, e), lambda e: BestCandidate(CODES[:, None], e)])
def test_users_pay_for_each_of_their_labels(make):
    assert make(0.1).loss(3).bound == pytest.approx(0.3)
    mine = vault(epsilon=0.3, users=[0, 0, 0, 1, 1, 2])
    release = mine.release(make(0.1))
    assert (release.guarantee.epsilon, release.guarantee.unit) == (0.3, "user")
    assert release.guarantee.trust == "central"


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize(
    "mechanism",
    [CorrectCount(CODES, 0.5), BestCandidate(np.stack([CODES, CODES[::-1]], axis=1), 0.5)],
)
def test_releases_are_stored_and_have_no_row_evidence(tmp_path, mechanism, suffix):
    mine = vault(epsilon=0.5)
    release = mine.release(mechanism, row_selection=[0, 1, 2])
    again = mine.release(mechanism, row_selection=[0, 1, 2])
    release.save(tmp_path / f"r{suffix}")
    loaded = ldp.Release.load(tmp_path / f"r{suffix}")
    names = ("best_index", "n_candidates") if isinstance(release, Choice) else ("n_correct", "n_labels", "scale")
    for other in (again, loaded):
        assert type(other) is type(release)
        assert [getattr(other, n) for n in names] == [getattr(release, n) for n in names]
        assert other.entry == release.entry
        assert other.lineage == release.lineage
    assert release.kind == "prior"
    assert not release.log_evidence().any()
    assert (release.labels() == -1).all()


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (CorrectCount(CODES[:3], 1.0), "one code for each of the 6 rows"),
        (CorrectCount(CODES * 1.0, 1.0), "codes of classes"),
        (CorrectCount(CODES + 1, 1.0), "from 0 to 2"),
        (BestCandidate(CODES, 1.0), "a column for each candidate"),
        (BestCandidate(np.empty((6, 0), int), 1.0), "a column for each candidate"),
        (BestCandidate(CODES[:, None] - 1, 1.0), "from 0 to 2"),
    ],
)
def test_bad_predictions_cost_nothing(mechanism, message):
    mine = vault()
    with pytest.raises(ldp.InputError, match=message):
        mine.release(mechanism)
    assert mine.guarantee().epsilon == 0


# Tables of scores


def drawn_widths(monkeypatch):
    """Record the requested scales of the noise, and draw the noise."""
    requests, draw = [], selection.discrete_laplace

    def noted(width, count, bits):
        requests.append(width)
        return draw(width, count, bits)

    monkeypatch.setattr(selection, "discrete_laplace", noted)
    return requests


RELEASE_FIELDS = dict(space=SPACE, guarantee=None, mechanism="", n_rows=3)


def largest_loss(scores, width):
    """The largest log-ratio of any winner between any two neighbours, for noise of this width."""
    labels = list(product(range(scores.shape[2]), repeat=scores.shape[1]))
    totals = {each: scores[:, np.arange(len(each)), each].sum(axis=1) for each in labels}
    laws = {each: winners(total, 2 / width) for each, total in totals.items()}
    pairs = [(one, other) for one in labels for other in labels if sum(np.not_equal(one, other)) == 1]
    return max(np.log(laws[one] / laws[other]).max() for one, other in pairs)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_no_winner_is_more_than_exp_epsilon_likelier_whatever_the_scores(seed, epsilon, monkeypatch):
    requests, rng = drawn_widths(monkeypatch), np.random.default_rng(seed)
    scores = rng.integers(-4, 5, (2 + seed % 2, 2, 3))
    HighestScore(scores, epsilon, row_ids=np.array([0, 2])).draw(np.array([0, 1, 2]), RELEASE_FIELDS, Seeded(0))
    assert largest_loss(scores, float(requests[0])) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_less_noise_would_be_too_little(epsilon, monkeypatch):
    """One candidate is far behind many: then its probability is proportional to exp(-threshold / width)."""
    requests = drawn_widths(monkeypatch)
    moved = np.zeros((12, 1, 2), int)
    moved[0, 0, 1], moved[1:, 0, 1] = 3, -3
    behind = np.zeros((12, 1, 2), int)
    behind[1:] = math.ceil(12 * 6 / epsilon)
    scores = np.concatenate([moved, behind], axis=1)
    mechanism = HighestScore(scores, epsilon)
    assert mechanism.sensitivity == 6
    mechanism.draw(np.array([0, 1]), RELEASE_FIELDS, Seeded(0))
    width = float(requests[0])
    assert 0.97 * epsilon < largest_loss(scores, width) <= epsilon * (1 + 1e-9)
    assert largest_loss(scores, width * 5 / 6) > epsilon * 1.1  # the reach of one step less
    assert largest_loss(scores, width / 2) > epsilon * 1.8  # how far a single total moves


@settings(max_examples=60)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(2, 4), st.integers(0, 10**6))
def test_reach_is_the_largest_move_of_one_total_against_another(candidates, rows, classes, seed):
    scores = np.random.default_rng(seed).integers(-9, 10, (candidates, rows, classes)).astype(np.int8)
    moves = [
        abs((int(one[r, b]) - int(one[r, a])) - (int(other[r, b]) - int(other[r, a])))
        for one in scores
        for other in scores
        for r in range(rows)
        for a, b in product(range(classes), repeat=2)
    ]
    assert HighestScore(scores, 1.0).sensitivity == max(1, *moves)


def test_reach_is_measured_in_blocks_of_rows(monkeypatch):
    scores = np.zeros((2, 7, 2), np.int16)
    scores[1, 6, 1] = -30_000
    scores[0, 6, 1] = 30_000
    monkeypatch.setattr(selection, "BLOCK_ROWS", 3)
    assert HighestScore(scores, 1.0).sensitivity == 60_000


def test_correct_predictions_are_a_case_of_scores(silent):
    predictions = np.array([[0, 1, 0], [1, 1, 0], [2, 0, 2], [1, 0, 0], [1, 0, 1], [1, 1, 0]])
    scores = np.eye(3, dtype=int)[predictions.T]
    mechanism = HighestScore(scores, 0.5)
    best = [vault().release(each).best_index for each in (mechanism, BestCandidate(predictions, 0.5))]
    assert mechanism.sensitivity == 2
    assert best[0] == best[1]
    assert silent == [(4, 3), (4, 3)]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_scores_are_drawn_from_the_law_of_their_totals(epsilon):
    scores = np.array([[[5, 0, 1], [2, 2, 0]], [[0, 3, 0], [4, 0, 1]], [[1, 1, 1], [6, 0, 0]]])
    mechanism, bits = HighestScore(scores, epsilon, row_ids=np.array([0, 2])), Seeded(0)
    totals = [5 + 2, 0 + 4, 1 + 6]
    drawn = np.bincount(
        [mechanism.draw(np.array([0, 1, 0]), RELEASE_FIELDS, bits).best_index for _ in range(3000)], minlength=3
    )
    assert chisquare(drawn, 3000 * winners(totals, 2 * epsilon / mechanism.sensitivity)).pvalue > 1e-4


def test_labels_of_other_rows_and_missing_labels_do_not_count(silent):
    space = ldp.LabelSpace(["a", "b"], missing="public")
    scores = np.array([[[1, 0], [0, 9]], [[0, 1], [9, 0]]])
    mechanism = HighestScore(scores, 0.5, row_ids=np.array([1, 3]))
    mine = ldp.Vault(["b", "a", "b", None], space, ldp.Budget(10.0))
    assert mine.release(mechanism).best_index == 0
    other = ldp.Vault(["b", "b", "b", None], space, ldp.Budget(10.0))
    assert other.release(mechanism).best_index == 1
    assert other.release(mechanism, row_selection=[0, 2]).best_index == 0  # no row counts: the first of equals wins


def test_criteria_are_different_requests_and_stored_in_the_ledger():
    mine, scores = vault(epsilon=2.0), np.arange(36).reshape(2, 6, 3)
    first = mine.release(HighestScore(scores, 1.0, "log-loss"))
    assert mine.release(HighestScore(scores, 1.0, "log-loss")).entry == first.entry
    assert mine.release(HighestScore(scores, 1.0, "auc")).entry != first.entry
    assert [entry.details["parameters"]["by"] for entry in mine.ledger.entries()] == ["log-loss", "auc"]
    assert mine.guarantee().epsilon == 2.0


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (HighestScore(np.zeros((6, 3), int), 1.0), "a table for each candidate: 6 rows, 3 classes"),
        (HighestScore(np.zeros((2, 6, 2), int), 1.0), "a table for each candidate"),
        (HighestScore(np.zeros((0, 6, 3), int), 1.0), "a table for each candidate"),
        (HighestScore(np.zeros((2, 6, 3), int), 1.0, row_ids=np.arange(2)), "2 rows, 3 classes"),
        (HighestScore(np.zeros((2, 6, 3)), 1.0), "whole numbers"),
        (HighestScore(np.full((2, 6, 3), 2**32), 1.0), "beyond 2.31"),
        (HighestScore(np.full((2, 6, 3), -(2**32)), 1.0), "beyond 2.31"),
        (
            HighestScore(np.zeros((1, 2, 3), int), 1.0, row_ids=np.array([1, 1])),
            "each once and in rising order",
        ),
        (
            HighestScore(np.zeros((1, 2, 3), int), 1.0, row_ids=np.array([2, 1])),
            "each once and in rising order",
        ),
        (HighestScore(np.zeros((1, 2, 3), int), 1.0, row_ids=np.array([-1, 1])), "row numbers from 0 to 5"),
        (HighestScore(np.zeros((1, 2, 3), int), 1.0, row_ids=np.array([1, 6])), "row numbers from 0 to 5"),
        (HighestScore(np.zeros((1, 6, 3), int), 1.0, row_ids=np.ones(6, bool)), "row numbers"),
    ],
)
def test_bad_scores_cost_nothing(mechanism, message):
    mine = vault()
    with pytest.raises(ldp.InputError, match=message):
        mine.release(mechanism)
    assert not mine.ledger.entries()
