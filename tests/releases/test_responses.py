from itertools import product
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.mechanisms import RRTopK
from labeldp.releases import Responses


def probability(output, label, candidates, epsilon):
    """P(output | label), from the definition."""
    k = len(candidates)
    if output not in candidates:
        return 0.0
    if label not in candidates:
        return 1 / k
    return (exp(epsilon) if output == label else 1.0) / (exp(epsilon) + k - 1)


def responses(outputs, epsilon, classes, candidates=None, row_mask=None):
    packed = None
    if candidates is not None:
        packed = np.packbits([[c in row for c in range(classes)] for row in candidates], axis=1)
    return Responses(
        space=ldp.LabelSpace(range(classes)),
        guarantee=ldp.Guarantee(epsilon),
        mechanism="test",
        n_rows=len(outputs),
        codes=np.array(outputs, np.int8),
        epsilon=epsilon,
        candidates=packed,
        row_mask=row_mask,
    )


EPSILONS = st.floats(0.01, 12)


@st.composite
def candidate_sets(draw):
    classes = draw(st.integers(2, 11))
    one = st.sets(st.integers(0, classes - 1), min_size=1).map(sorted)
    return classes, draw(st.lists(one, min_size=1, max_size=4))


@given(st.integers(2, 11), EPSILONS)
def test_evidence_of_randomized_response_is_the_log_of_its_channel(classes, epsilon):
    evidence = responses(range(classes), epsilon, classes).log_evidence()
    for output, label in product(range(classes), repeat=2):
        assert evidence[output, label] == pytest.approx(
            log(probability(output, label, range(classes), epsilon)), rel=1e-5
        )
    assert np.exp(evidence).sum(axis=0) == pytest.approx(1, rel=1e-5)


@given(candidate_sets(), EPSILONS)
def test_evidence_over_candidates_is_the_log_of_each_rows_channel(sets, epsilon):
    classes, sets = sets
    rows = [(output, allowed) for allowed in sets for output in allowed]
    outputs, allowed = zip(*rows, strict=True)
    evidence = responses(outputs, epsilon, classes, allowed).log_evidence()
    for row, label in product(range(len(rows)), range(classes)):
        expected = log(probability(outputs[row], label, allowed[row], epsilon))
        assert evidence[row, label] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    start = 0
    for candidates in sets:
        part = evidence[start : start + len(candidates)]
        assert np.exp(part).sum(axis=0) == pytest.approx(1, rel=1e-5)
        start += len(candidates)


@given(candidate_sets(), EPSILONS, st.data())
def test_noise_matrix_averages_the_channels_of_the_released_rows(sets, epsilon, data):
    classes, sets = sets
    row_mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(sets), max_size=len(sets))))
    row_mask[0] = True
    matrix = responses([row[0] for row in sets], epsilon, classes, sets, row_mask).noise_matrix()
    for output, label in product(range(classes), repeat=2):
        mean = np.mean([probability(output, label, row, epsilon) for row in np.array(sets, object)[row_mask]])
        assert matrix[output, label] == pytest.approx(mean)
    assert matrix.sum(axis=0) == pytest.approx(1)


@given(st.integers(2, 11), EPSILONS)
def test_noise_matrix_of_randomized_response_is_the_exponential_of_its_evidence(classes, epsilon):
    release = responses(range(classes), epsilon, classes)
    assert release.noise_matrix() == pytest.approx(np.exp(release.log_evidence()), rel=1e-5)
    assert release.noise_matrix().sum(axis=0) == pytest.approx(1)


@pytest.mark.parametrize("candidates", [None, [[0, 1, 2]] * 3])
def test_a_huge_epsilon_does_not_overflow(candidates):
    release = responses(range(3), 5000.0, 3, candidates)
    assert release.noise_matrix() == pytest.approx(np.eye(3))
    assert release.log_evidence()[0] == pytest.approx([0, -5000, -5000])


def test_dropping_every_row_leaves_no_channel():
    release = responses([0, 1], 1.0, 3, [[0], [1, 2]]).keep(np.zeros(2, bool))
    assert not release.noise_matrix().any()


@pytest.mark.parametrize("classes", [3, 9])
def test_responses_of_a_vault_are_the_likeliest_among_their_candidates(classes):
    generator = np.random.default_rng(0)
    prior = generator.dirichlet(np.ones(classes), 300)
    vault = ldp.Vault(generator.integers(0, classes, 300), ldp.LabelSpace(range(classes)), ldp.Budget(2.0))
    release = vault.release(RRTopK(epsilon=2.0, prior=prior, k=2))
    evidence = release.log_evidence()
    for row, output in enumerate(release.labels()):
        candidates = np.argsort(-prior[row])[:2]
        assert output in candidates
        assert evidence[row].tolist() == pytest.approx(
            [log(probability(output, label, candidates, 2.0)) for label in range(classes)], rel=1e-5
        )


def test_rows_not_released_are_zeros_and_minus_one():
    vault = ldp.Vault(["a", None, "b", "a"], ldp.LabelSpace(["a", "b"], missing="public"), ldp.Budget(1.0))
    release = vault.release(ldp.RandomizedResponse(1.0), row_selection=[0, 1, 2])
    assert (release.labels() == -1).tolist() == [False, True, False, True]
    assert (release.log_evidence() == 0).all(axis=1).tolist() == [False, True, False, True]


def test_labels_can_be_changed_without_changing_the_release():
    release = responses([0, 1, 1], 1.0, 2)
    before = release.log_evidence()
    release.labels()[:] = 0
    assert np.array_equal(release.log_evidence(), before)
