"""A property of every mechanism: after its charge, a draw succeeds for any labels."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array

import labeldp as ldp
from labeldp.core.label_space import MISSING, EncodedLabels
from labeldp.privacy import mechanisms as m
from labeldp.privacy.teachers.heads import Heads
from labeldp.privacy.teachers.teacher_votes import TeacherVotes

SMALLEST, LARGEST = 1e-9, 700.0


def prior(rows, classes):
    """Distributions of several forms: uniform, with zeros, and with all mass on one class."""
    weights = np.random.default_rng(rows * classes).random((rows, classes)) ** 4
    weights[::3] = 1.0
    weights[1::5, 1:] = 0.0
    return weights / weights.sum(axis=1, keepdims=True)


def points(rows, columns=3):
    values = np.random.default_rng(rows).normal(size=(rows, columns))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def votes(kind):
    teachers = 3

    def make(rows, classes, epsilon):
        mechanism = {
            "confident": m.ConfidentGNMax(2.0, 3.0, 1.0, rows, rows),
            "gaussian": m.GNMax(2.0, rows),
            "laplace": m.LNMax(2.0, rows),
            "stable": m.StableVote(1.0, 1e-6, rows, min(rows, 3)),
        }[kind]
        return TeacherVotes(points(rows), np.arange(rows), min(teachers, rows), mechanism, delta=1e-6, trainer=Heads())

    return make


CLASSES = {
    "RandomizedResponse": lambda n, k, e: m.RandomizedResponse(e),
    "RRTopK": lambda n, k, e: m.RRTopK(e, prior(n, k), k=max(1, k // 2)),
    "RRWithPrior": lambda n, k, e: m.RRWithPrior(e, prior(n, k)),
    "RRMaxInformation": lambda n, k, e: m.RRMaxInformation(e, prior(n, k)),
    "OneHotLaplace": lambda n, k, e: m.OneHotLaplace(e),
    "OneHotGaussian": lambda n, k, e: m.OneHotGaussian(e, 1e-6),
    "GroupHistogram": lambda n, k, e: m.GroupHistogram(np.arange(n) // 3, e),
    "GroupHistogram, gaussian": lambda n, k, e: m.GroupHistogram(np.zeros(n, int), e, 1e-6, "gaussian"),
    "LinearQuery": lambda n, k, e: m.LinearQuery(points(n, 40), e),
    "LinearQuery, gaussian": lambda n, k, e: m.LinearQuery(points(n), e, 1e-6),
    "LinearQuery, sparse": lambda n, k, e: m.LinearQuery(coo_array(points(n, 40)), e),
    "LinearQuery, sparse, gaussian": lambda n, k, e: m.LinearQuery(coo_array(points(n)), e, 1e-6),
    "LinearQuery, sparse, of zeros": lambda n, k, e: m.LinearQuery(coo_array((n, 2)), e),
    "LinearQuery of zeros": lambda n, k, e: m.LinearQuery(np.zeros((n, 2)), e),
    "CorrectCount": lambda n, k, e: m.CorrectCount((np.arange(n) % k).astype(np.int32), e),
    "BestCandidate": lambda n, k, e: m.BestCandidate((np.arange(3 * n).reshape(n, 3) % k).astype(np.int32), e),
    "HighestScore": lambda n, k, e: m.HighestScore(np.arange(2 * n * k).reshape(2, n, k)[:, ::-1] ** 2 % 97, e),
    "HighestScore of some rows": lambda n, k, e: m.HighestScore(-np.ones((1, 1, k), int), e, row_ids=np.array([n - 1])),
    "LargestResiduals": lambda n, k, e: m.LargestResiduals(
        np.arange(3 * n).reshape(n, 3) % 5, np.array([[0, 1], [2, 0], [1, 2]]), prior(n, k), 2, e
    ),
    "votes, confident": votes("confident"),
    "votes, gaussian": votes("gaussian"),
    "votes, laplace": votes("laplace"),
    "votes, stable": votes("stable"),
}
NUMBERS = {
    "RROnBins": lambda n, k, e: m.RROnBins(e, np.full(k, 1 / k)),
    "RROnBins of groups": lambda n, k, e: m.RROnBins(e, prior(2, k), groups=np.arange(n) % 2),
    "RROnBins, absolute": lambda n, k, e: m.RROnBins(e, np.full(k, 1 / k), "absolute"),
    "UnbiasedBins": lambda n, k, e: m.UnbiasedBins(e, np.full(k, 1 / k)),
    "DiscreteLaplace": lambda n, k, e: m.DiscreteLaplace(e),
    "NumberSums": lambda n, k, e: m.NumberSums(points(n, 40), e, n_values=k),
    "NumberSums, gaussian": lambda n, k, e: m.NumberSums(points(n), e, 1e-6, n_values=k),
    "LossSum": lambda n, k, e: m.LossSum(np.linspace(0, k - 1, n), e),
    "LossSum, absolute": lambda n, k, e: m.LossSum(np.zeros(n), e, "absolute"),
    "NoisyMinLoss": lambda n, k, e: m.NoisyMinLoss(np.linspace(0, k - 1, 2 * n).reshape(n, 2), e),
}


@st.composite
def vectors(draw):
    """Draw codes of all classes, of one alone, of all but one, and with missing ones."""
    rows, classes = draw(st.integers(1, 12)), draw(st.integers(2, 30))
    kind = draw(st.sampled_from(["any", "constant", "two", "missing"]))
    if kind == "constant":
        codes = [draw(st.integers(0, classes - 1))] * rows
    elif kind == "two":
        codes = draw(st.lists(st.sampled_from([0, classes - 1]), min_size=rows, max_size=rows))
    else:
        low = MISSING if kind == "missing" else 0
        codes = draw(st.lists(st.integers(low, classes - 1), min_size=rows, max_size=rows))
    return np.array(codes, np.int8), classes


def check(make, codes, space, epsilon):
    """Release; an error is one of this library's, and then nothing was charged."""
    vault = ldp.Vault(EncodedLabels(codes), space, ldp.Budget(1e9, 0.1))
    try:
        release = vault.release(make(codes.size, len(space), epsilon))
    except ldp.LabelDPError:
        assert not vault.ledger.entries()
    else:
        assert release.n_rows == codes.size
        assert [entry.status for entry in vault.ledger.entries()] == ["committed"]


epsilons = st.sampled_from([SMALLEST, 1e-6, 0.1, 1.0, 30.0, LARGEST])


@pytest.mark.parametrize("name", CLASSES)
@given(vectors(), epsilons)
@settings(max_examples=6)
def test_every_draw_of_classes_succeeds(name, labels, epsilon):
    codes, classes = labels
    check(CLASSES[name], codes, ldp.LabelSpace(list(range(classes)), missing="public"), epsilon)


@pytest.mark.parametrize("name", NUMBERS)
@given(vectors(), epsilons)
@settings(max_examples=6)
def test_every_draw_of_numbers_succeeds(name, labels, epsilon):
    codes, values = labels
    check(NUMBERS[name], codes, ldp.LabelSpace.range(0, values - 1, 1, missing="public"), epsilon)


def test_noise_that_cannot_be_drawn_is_refused_before_it_is_charged():
    query = np.full((2, 40_000), 0.005)
    for make in (
        lambda n, k, e: m.LinearQuery(query, e),
        lambda n, k, e: m.HighestScore(np.array([[[0, 2**31]] * 2, [[0, 0]] * 2]), e),
        lambda n, k, e: TeacherVotes(points(2), np.arange(2), 1, m.StableVote(e, 1e-6, 2, 10**6), delta=1e-6),
    ):
        vault = ldp.Vault([0, 1], ldp.LabelSpace([0, 1]), ldp.Budget(1.0, 0.1))
        with pytest.raises(ldp.InputError, match="much noise cannot be drawn"):
            vault.release(make(2, 2, SMALLEST))
        assert not vault.ledger.entries()


def test_every_mechanism_is_covered():
    mechanisms = {name for name, each in vars(m).items() if inspect.isclass(each) and issubclass(each, m.Mechanism)}
    covered = {name.split(",")[0].split(" ")[0] for name in (*CLASSES, *NUMBERS)}
    assert {name for name in m.__all__ if name in mechanisms} - {"Mechanism"} <= covered
