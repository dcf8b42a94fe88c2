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
from labeldp.mechanisms import selection
from labeldp.releases import Choice, NoisyRight

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
    mechanism, bits = ldp.BestCandidate(predictions, epsilon), Seeded(0)
    common = vault().release(ldp.RandomizedResponse(1.0))
    common = dict(space=SPACE, guarantee=common.guarantee, mechanism="", rows=6)
    drawn = np.bincount([mechanism.draw(CODES, common, bits).best for _ in range(3000)], minlength=3)
    assert chisquare(drawn, 3000 * winners(right, epsilon)).pvalue > 1e-4


@pytest.fixture
def silent(monkeypatch):
    """Noise switched off, with the widths that were asked for."""
    asked = []

    def nothing(width, count, bits):
        asked.append((width, count))
        return np.zeros(count, np.int64)

    monkeypatch.setattr(selection, "discrete_laplace", nothing)
    return asked


def test_right_predictions_are_counted(silent):
    release = vault().release(ldp.RightCount(np.array([0, 1, 1, 1, 0, 0]), 0.5))
    assert isinstance(release, NoisyRight)
    assert (release.right, release.size, release.scale) == (3, 6, 2.0)
    part = vault().release(ldp.RightCount(np.array([0, 1, 1, 1, 0, 0]), 0.5), rows=[1, 2])
    assert (part.right, part.size) == (1, 2)
    assert silent == [(2, 1), (2, 1)]


def test_the_first_of_equals_wins_without_noise(silent):
    right, wrong = CODES, (CODES + 1) % 3
    assert vault().release(ldp.BestCandidate(np.stack([wrong, right, right], axis=1), 0.5)).best == 1
    assert vault().release(ldp.BestCandidate(np.stack([right, wrong, right], axis=1), 0.5)).best == 0
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
    law = noise_law(ldp.RightCount(CODES, epsilon).epsilon ** -1, 30)[1]
    assert np.abs(np.diff(np.log(law))).max() == pytest.approx(epsilon, rel=1e-9)


def test_missing_labels_are_never_right():
    space = ldp.LabelSpace(["a", "b"], missing="public")
    labels = ["a", None, "b", None]
    release = ldp.Vault(labels, space, ldp.Budget(100.0)).release(ldp.RightCount(np.zeros(4, int), 100.0))
    assert (release.right, release.size) == (1, 2)


@pytest.mark.parametrize("make", [lambda e: ldp.RightCount(CODES, e), lambda e: ldp.BestCandidate(CODES[:, None], e)])
def test_users_pay_for_each_of_their_labels(make):
    assert make(0.1).loss(3).bound == pytest.approx(0.3)
    mine = vault(epsilon=0.3, users=[0, 0, 0, 1, 1, 2])
    release = mine.release(make(0.1))
    assert (release.guarantee.epsilon, release.guarantee.unit) == (0.3, "user")
    assert release.guarantee.trust == "central"


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize(
    "mechanism", [ldp.RightCount(CODES, 0.5), ldp.BestCandidate(np.stack([CODES, CODES[::-1]], axis=1), 0.5)]
)
def test_releases_are_stored_and_speak_of_no_row(tmp_path, mechanism, suffix):
    mine = vault(epsilon=0.5)
    release = mine.release(mechanism, rows=[0, 1, 2])
    again = mine.release(mechanism, rows=[0, 1, 2])
    release.save(tmp_path / f"r{suffix}")
    loaded = ldp.Release.load(tmp_path / f"r{suffix}")
    names = ("best", "candidates") if isinstance(release, Choice) else ("right", "size", "scale")
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
        (ldp.RightCount(CODES[:3], 1.0), "one code for each of the 6 rows"),
        (ldp.RightCount(CODES * 1.0, 1.0), "codes of classes"),
        (ldp.RightCount(CODES + 1, 1.0), "from 0 to 2"),
        (ldp.BestCandidate(CODES, 1.0), "a column for each candidate"),
        (ldp.BestCandidate(np.empty((6, 0), int), 1.0), "a column for each candidate"),
        (ldp.BestCandidate(CODES[:, None] - 1, 1.0), "from 0 to 2"),
    ],
)
def test_bad_predictions_cost_nothing(mechanism, message):
    mine = vault()
    with pytest.raises(ldp.InputError, match=message):
        mine.release(mechanism)
    assert mine.guarantee().epsilon == 0
