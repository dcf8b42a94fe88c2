import math
from itertools import permutations, product

import numpy as np
import pytest
from countlaws import winners
from scipy.stats import chisquare
from scripted import Seeded

import labeldp as ldp
from labeldp.mechanisms import LargestResiduals
from labeldp.privacy.mechanisms import residual_selection, selection
from labeldp.releases import Choices

TWO, THREE = ldp.LabelSpace(["a", "b"]), ldp.LabelSpace(["a", "b", "c"])
CODES = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1]])
PAIRS = np.array([[0, 1], [0, 2], [1, 2]])


def expected_of(classes, rows=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(classes), rows)


def release_fields(classes, rows=4):
    return dict(space=(None, None, TWO, THREE)[classes], guarantee=None, mechanism="", n_rows=rows)


@pytest.fixture
def seen(monkeypatch):
    """The scores and noise widths of each pick, which is drawn all the same."""
    scores, widths = [], []
    pick, draw = residual_selection.noisy_argmax, selection.discrete_laplace

    def noted_pick(totals, *rest):
        scores.append(totals)
        return pick(totals, *rest)

    def noted_draw(width, count, bits):
        widths.append(float(width))
        assert count == scores[-1].size
        return draw(width, count, bits)

    monkeypatch.setattr(residual_selection, "noisy_argmax", noted_pick)
    monkeypatch.setattr(selection, "discrete_laplace", noted_draw)
    return scores, widths


def law_of_picks(scores, width, count):
    """P(each ordered outcome): noisy maxima one after another, each over what is left."""
    law = {}
    for picks in permutations(range(len(scores)), count):
        left, probability = list(range(len(scores))), 1.0
        for pick in picks:
            probability *= winners([scores[i] for i in left], 2 / width)[left.index(pick)]
            left.remove(pick)
        law[picks] = probability
    return law


def largest_loss(totals, width, count, rows=1):
    """The largest log-ratio of any outcome between any two labellings that differ in so many rows."""
    laws = {labels: law_of_picks(scores, width, count) for labels, scores in totals.items()}
    near = [pair for pair in product(laws, repeat=2) if sum(np.not_equal(*pair)) == rows]
    return max(math.log(laws[one][picks] / laws[other][picks]) for one, other in near for picks in laws[one])


def plain_scores(codes, pairs, expected, labels):
    """The scores by their definition, cell by cell in plain Python."""
    classes, found = expected.shape[1], []
    for first, second in pairs:
        residual, sampled = 0, 0.0
        for cell in set(zip(codes[:, first], codes[:, second], strict=True)):
            inside = [i for i in range(len(codes)) if (codes[i, first], codes[i, second]) == cell and labels[i] >= 0]
            for k in [1] if classes == 2 else range(classes):
                probabilities = [expected[i, k] for i in inside]
                residual += abs(sum(labels[i] == k for i in inside) - round(sum(probabilities)))
                sampled += math.sqrt(2 / math.pi * sum(p * (1 - p) for p in probabilities))
        found.append(residual - round(sampled))
    return found


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_scores_are_residuals_beyond_sampling(seen, classes, seed):
    generator = np.random.default_rng(seed)
    codes, labels = generator.integers(0, (3, 4, 2), (200, 3)), generator.integers(-1, classes, 200)
    expected = expected_of(classes, 200, seed)
    mechanism = LargestResiduals(codes, PAIRS, expected, 1, 1.0)
    mechanism.draw(labels, release_fields(classes, 200), Seeded(0))
    assert seen[0][0].tolist() == plain_scores(codes, PAIRS, expected, labels)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize(("classes", "count"), [(2, 1), (2, 2), (3, 1), (3, 2)])
def test_no_outcome_is_more_than_exp_epsilon_likelier_on_a_neighbour(seen, classes, count, epsilon):
    for seed in range(3):
        mechanism = LargestResiduals(CODES, PAIRS, expected_of(classes, seed=seed), count, epsilon)
        totals = {}
        for labels in product(range(classes), repeat=4):
            seen[0].clear(), seen[1].clear()
            mechanism.draw(np.array(labels), release_fields(classes), Seeded(0))
            totals[labels] = seen[0][0]
            assert len(seen[1]) == count
            assert len(set(seen[1])) == 1
        assert seen[1][0] == pytest.approx(2 * (classes - 1) * count / epsilon)
        assert largest_loss(totals, seen[1][0], count) <= epsilon * (1 + 1e-9)
        assert largest_loss(totals, seen[1][0], count, rows=2) <= float(mechanism.price(2)[0]) * (1 + 1e-9)


def far_behind(classes, others, rows):
    """A cross that falls behind many equal ones, and the two labellings of one row that move them most.

    The row is alone in its cell of the first cross. In the others it shares a cell, of which the model expects more.
    """
    codes = np.zeros((rows, others + 2), np.int64)
    codes[0, 1] = 1
    pairs = np.array([[0, 1], *[[0, 2 + i] for i in range(others)]])
    expected = np.zeros((rows, classes))
    expected[0, 0], expected[1:, 1] = 1, 1
    return codes, pairs, expected


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_a_sensitivity_understated_by_half_is_too_little_noise(seen, classes, count):
    """One row moves the first cross down and all others up: 12 of them, so that the first wins by its tail."""
    codes, pairs, expected = far_behind(classes, 12, 2)
    epsilon = 1.0
    mechanism = LargestResiduals(codes, pairs, expected, count, epsilon)
    moved = []
    for label in (0, 1):
        seen[0].clear()
        mechanism.draw(np.array([label, 0]), release_fields(classes, 2), Seeded(0))
        moved.append(seen[0][0])
    width, s = seen[1][0], classes - 1
    assert (moved[1] - moved[0]).tolist() == [s, *[-s] * 12]  # opposite directions
    for factor, least, most in ((1.0, 0.9, 1.0), (0.5, 1.8, 2.0)):
        far = math.ceil(14 * width)  # the first cross is far behind, by rows that no label of this pair moves
        one, other = ([scores[0] - far, *scores[1:]] for scores in moved)
        first = np.log(winners(other, 2 / (width * factor)) / winners(one, 2 / (width * factor)))[0]
        assert least * epsilon / count < first <= most * epsilon / count * (1 + 1e-9)


@pytest.mark.parametrize("count", [1, 2])
def test_the_code_draws_from_that_law(count):
    labels = np.array([1, 0, 0, 1])
    mechanism, bits = LargestResiduals(CODES, PAIRS, expected_of(2), count, 1.5), Seeded(0)
    law = law_of_picks(plain_scores(CODES, PAIRS, expected_of(2), labels), 2 * count / 1.5, count)
    drawn = [mechanism.draw(labels, release_fields(2), bits).picks for _ in range(3000)]
    assert set(drawn) <= set(law)
    assert (
        chisquare([drawn.count(picks) for picks in law], [3000 * probability for probability in law.values()]).pvalue
        > 1e-4
    )


def test_each_pick_has_fresh_noise_and_excludes_earlier_picks(seen):
    mechanism = LargestResiduals(CODES, PAIRS, expected_of(2), 3, 1.0)
    orders = {mechanism.draw(np.array([0, 1, 1, 0]), release_fields(2), Seeded(seed)).picks for seed in range(200)}
    assert orders == set(permutations(range(3)))
    assert [each.size for each in seen[0][:3]] == [3, 2, 1]


def crossed(rows, labels_missing=0.0, seed=0):
    """Five columns, of which the second and the fourth decide together, as one of the labels of two classes."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, 4, (rows, 5)).astype(np.uint8)
    second = generator.random(rows) < np.where((codes[:, 1] < 2) == (codes[:, 3] < 2), 0.6, 0.4)
    labels = np.where(second, "b", "a").astype(object)
    labels[generator.random(rows) < labels_missing] = None
    return codes, labels, np.full((rows, 2), 0.5)


def test_an_interaction_is_found():
    codes, labels, expected = crossed(20_000, 0.3)
    pairs = np.array([(i, j) for i in range(5) for j in range(i)])
    vault = ldp.Vault(labels, ldp.LabelSpace(["a", "b"], missing="public"), ldp.Budget(1.0))
    release = vault.release(LargestResiduals(codes, pairs, expected, 2, 1.0))
    assert pairs[release.picks[0]].tolist() == [3, 1]
    assert (len(set(release.picks)), release.n_candidates) == (2, 10)
    assert vault.guarantee().epsilon == 1.0


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_the_release_is_stored_and_has_no_row_evidence(tmp_path, suffix):
    codes, labels, expected = crossed(50)
    vault = ldp.Vault(labels, TWO, ldp.Budget(1.0))
    mechanism = LargestResiduals(codes, PAIRS, expected, 2, 0.5)
    release, again = (
        vault.release(mechanism, row_selection=[0, 3, 9]),
        vault.release(mechanism, row_selection=[0, 3, 9]),
    )
    release.save(tmp_path / f"r{suffix}")
    for other in (again, ldp.Release.load(tmp_path / f"r{suffix}")):
        assert isinstance(other, Choices)
        assert (other.picks, other.n_candidates) == (release.picks, 3)
        assert other.entry == release.entry
    assert vault.guarantee().epsilon == 0.5
    assert not release.log_evidence().any()
    assert (release.labels() == -1).all()


def test_rows_without_a_label_take_no_part_on_either_side(seen):
    space = ldp.LabelSpace(["a", "b"], missing="public")
    expected = expected_of(2, 6)
    codes = np.vstack([CODES, CODES[:2]])
    whole = LargestResiduals(codes, PAIRS, expected, 1, 1.0)
    ldp.Vault(["a", "b", "b", "b", None, None], space, ldp.Budget(1.0)).release(whole)
    ldp.Vault(["a", "b", "b", "b", "a", "b"], space, ldp.Budget(1.0)).release(whole, row_selection=range(4))
    assert seen[0][0].tolist() == seen[0][1].tolist() == plain_scores(CODES, PAIRS, expected[:4], [0, 1, 1, 1])


def test_other_arrays_and_counts_are_different_requests():
    def request(codes=CODES, pairs=PAIRS, expected=None, count=1, epsilon=1.0):
        probabilities = expected_of(2) if expected is None else expected
        return repr(LargestResiduals(codes, pairs, probabilities, count, epsilon).parameters())

    others = [request(codes=CODES + 1), request(pairs=PAIRS[::-1]), request(expected=expected_of(2, seed=1))]
    assert request() == request(count=np.int64(1), epsilon=1)
    assert len({request(), *others, request(count=2), request(epsilon=2.0)}) == 6


def test_arrays_are_copied():
    codes, expected = CODES.copy(), expected_of(2)
    mechanism = LargestResiduals(codes, PAIRS, expected, 1, 1.0)
    codes[0] = 9
    expected[0] = 0
    assert mechanism.column_bins.max() == 1
    assert mechanism.expected_probabilities[0].sum() == pytest.approx(1)


def test_users_pay_for_each_of_their_labels():
    mechanism = LargestResiduals(CODES, PAIRS, expected_of(2), 2, 0.1)
    assert mechanism.loss(3).bound == pytest.approx(0.3)
    vault = ldp.Vault(["a", "b", "b", "a"], TWO, ldp.Budget(0.3), users=[0, 0, 0, 1])
    assert vault.release(mechanism).guarantee.epsilon == pytest.approx(0.3)


GOOD = dict(column_bins=CODES, column_pairs=PAIRS, expected_probabilities=expected_of(2), n_picks=1, epsilon=1.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(column_bins=CODES[:3]), "whole numbers with 4 rows"),
        (dict(column_bins=CODES * 1.0), "whole numbers with 4 rows"),
        (dict(column_bins=CODES[:, 0]), "whole numbers with 4 rows"),
        (dict(column_bins=CODES - 1), "number the bins from 0"),
        (dict(column_bins=CODES * 2**30), "number the bins from 0"),
        (dict(column_bins=CODES * 5000), "too many cells"),
        (dict(column_pairs=PAIRS[:, :1]), "two column numbers"),
        (dict(column_pairs=PAIRS[:0]), "two column numbers"),
        (dict(column_pairs=PAIRS * 1.0), "two column numbers"),
        (dict(column_pairs=PAIRS + 1), "numbers from 0 to 2"),
        (dict(column_pairs=PAIRS - 1), "numbers from 0 to 2"),
        (dict(column_pairs=np.array([[1, 1]])), "two different columns"),
        (dict(expected_probabilities=expected_of(3)), "The table of expected probabilities has shape"),
        (
            dict(expected_probabilities=expected_of(2) * 2),
            "Each row of the table of expected probabilities must be a distribution",
        ),
        (dict(expected_probabilities=np.full((4, 2), np.nan)), "must be a distribution"),
        (dict(expected_probabilities=np.eye(4, 2, dtype=int)), "a table of floats"),
        (dict(n_picks=0), "between 1 and 3"),
        (dict(n_picks=4), "between 1 and 3"),
        (dict(n_picks=1.0), "n_picks must be a whole number"),
        (dict(n_picks=True), "n_picks must be a whole number"),
        (dict(epsilon=0.0), "epsilon must be"),
    ],
)
def test_bad_input_costs_nothing(changed, message):
    vault = ldp.Vault(["a", "b", "b", "a"], TWO, ldp.Budget(1.0))
    with pytest.raises(ldp.InputError, match=message):
        vault.release(LargestResiduals(**(GOOD | changed)))
    assert not vault.ledger.entries()


def test_noise_that_cannot_be_drawn_costs_nothing():
    vault, pairs = ldp.Vault(["a", "b", "b", "a"], TWO, ldp.Budget(1.0)), np.tile(PAIRS, (200_000, 1))
    with pytest.raises(ldp.InputError, match="noise cannot be drawn"):
        vault.release(LargestResiduals(CODES, pairs, expected_of(2), len(pairs), 1e-9))
    assert not vault.ledger.entries()
