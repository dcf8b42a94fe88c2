"""The audit of mechanisms is itself audited: it finds what is broken, and nothing in what is not."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom

import labeldp as ldp
from labeldp.audit.mechanism import audit_mechanism
from labeldp.audit.mechanism_names import MECHANISM_NAMES, make_mechanism
from labeldp.audit.neighbor_pairs import pair_of_labels, pair_of_rows, pair_of_votes, worst_neighbor_pairs
from labeldp.mechanisms import (
    BestCandidate,
    ConfidentGNMax,
    CorrectCount,
    DiscreteLaplace,
    GNMax,
    GroupHistogram,
    HighestScore,
    ImmutableArgmax,
    LargestResiduals,
    LinearQuery,
    LNMax,
    LossSum,
    NoisyMinLoss,
    NumberSums,
    OneHotGaussian,
    OneHotLaplace,
    RRWithPrior,
    StableVote,
)
from labeldp.privacy.mechanisms.vote_aggregators import Answers, draw_noisy_winners
from labeldp.privacy.teachers.teacher_votes import TeacherVotes

SURE = 1 - 1e-7
NUMBERS = {"rr-on-bins", "unbiased-bins", "discrete-laplace"}
PURE = {"rr", "rr-top-k", "rr-with-prior", "rr-max-information", "laplace", "histogram", "linear"} | NUMBERS
SOUND = [name for name in MECHANISM_NAMES if name != "immutable"]


@pytest.fixture(autouse=True)
def _immutable():
    ldp.allow_unproven("immutable")


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found_against_a_sound_mechanism(name):
    several = 4 if name.startswith("rr-") or name == "unbiased-bins" else 2
    mechanism, delta = make_mechanism(name, 1.5, classes=several) if name in PURE else NOISES[name]
    draws = 3_000 if name == "stable-vote" else 40_000
    audit = audit_mechanism(mechanism, delta=delta, draws=draws, confidence=SURE)
    assert audit.holds
    assert audit.lower <= audit.epsilon
    if name in PURE:
        assert audit.lower > 1.2  # close to what is stated
    assert audit.to_json()["holds"] is True


def test_sparse_sums_are_audited_by_their_largest_row():
    query = csr_array(np.array([[0.1, 0.0, 0.0], [0.0, -1.0, 0.0]]))
    for delta in (0.0, 1e-5):
        mechanism = LinearQuery(query, 1.5, delta)
        worlds = worst_neighbor_pairs(mechanism)
        assert [each.name.split()[5] for each in worlds] == (["2"] if delta else ["2", "3"])
        assert audit_mechanism(mechanism, draws=40_000, confidence=SURE).holds
    for each in worst_neighbor_pairs(LinearQuery(query, 1.5)):  # with noise in one column, and in all
        assert 1.2 < audit_mechanism(LinearQuery(query, 1.5), pairs=each, draws=40_000).lower <= 1.5


@pytest.mark.parametrize("name", ["rr-top-k", "rr-with-prior", "rr-max-information"])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_named_mechanisms_with_a_prior_have_something_to_audit(name, classes):
    """Of one candidate, randomized response is a constant."""
    for epsilon in [1e-9, 1e-4, 0.01, 0.5, 1.0, 3.0, 20.0]:
        if name == "rr-max-information" and epsilon < 1e-5:  # which knows that nothing can be told
            continue
        mechanism, _ = make_mechanism(name, epsilon, classes=classes)
        assert mechanism.count_candidates(np.sort(mechanism.prior)[:, ::-1])[0] >= 2
    audit = audit_mechanism(make_mechanism(name, 0.5, classes=classes)[0], draws=20_000, confidence=SURE)
    assert audit.holds
    assert not audit.constant
    assert audit.lower > 0.2


def test_the_audit_of_a_constant_shows_nothing():
    """Of a sure prior, one candidate is left; nothing is found, but there was nothing to find."""
    audit = audit_mechanism(RRWithPrior(0.5, np.array([[0.9, 0.1]])), draws=1_000)
    assert (audit.lower, audit.constant, audit.holds) == (0.0, True, False)
    assert audit.to_json()["constant"] is True
    assert audit.to_json()["holds"] is False


def test_a_mechanism_that_varies_in_one_pair_of_worlds_is_no_constant():
    space = ldp.LabelSpace([0, 1])
    still = pair_of_rows(ldp.RandomizedResponse(1.0), space, (0, 1), lambda release: 0 * release.codes)
    moving = pair_of_rows(ldp.RandomizedResponse(1.0), space, (0, 1), lambda release: release.codes)
    for worlds, constant in (([still, moving], False), ([still], True)):
        assert audit_mechanism(ldp.RandomizedResponse(1.0), pairs=worlds, draws=1_000).constant is constant


@pytest.mark.parametrize("kind", [LossSum, NoisyMinLoss])
def test_scores_of_numbers_keep_their_promise(kind):
    audit = audit_mechanism(kind(np.zeros((1, 2)), 1.5), draws=4000, confidence=SURE)
    assert audit.holds
    assert audit.lower > 0.1  # a choice between two tells about half of what it is charged for


NOISES = {  # votes, without the time that calibration takes
    "gaussian": (OneHotGaussian(1.5, 1e-5), 1e-5),
    "lnmax": (LNMax(1.0, 1), 0.0),
    "gnmax": (GNMax(4.0, 1), 1e-5),
    "confident-gnmax": (ConfidentGNMax(30, 12.0, 4.0, 1, 1), 1e-5),
    "stable-vote": (StableVote(1.5, 1e-5, 1, 1), 1e-5),
}


@dataclass(frozen=True, eq=False)
class BoldResponse(ldp.RandomizedResponse):
    factor: float = 2.0

    def draw(self, codes, common, bits):
        return ldp.RandomizedResponse(self.factor * self.epsilon).draw(codes, common, bits)


@dataclass(frozen=True, eq=False)
class BoldLaplace(OneHotLaplace):
    factor: float = 2.0

    def draw(self, codes, common, bits):
        return OneHotLaplace(self.factor * self.epsilon).draw(codes, common, bits)


@dataclass(frozen=True, eq=False)
class BoldGaussian(OneHotGaussian):
    factor: float = 2.0

    def draw(self, codes, common, bits):
        quiet = OneHotGaussian(self.epsilon, self.delta)
        quiet.__dict__["sigma"] = self.sigma / self.factor
        return quiet.draw(codes, common, bits)


@dataclass(frozen=True, eq=False)
class BoldHistogram(GroupHistogram):
    factor: float = 2.0

    def draw(self, codes, common, bits):
        return GroupHistogram(self.groups, self.factor * self.epsilon).draw(codes, common, bits)


@dataclass(frozen=True, eq=False)
class BoldSums(LinearQuery):
    factor: float = 2.0

    def draw(self, codes, common, bits):
        return LinearQuery(self.query, self.factor * self.epsilon).draw(codes, common, bits)


@dataclass(frozen=True, eq=False)
class BoldNumbers(NumberSums):
    factor: float = 2.0

    def draw(self, codes, common, bits):
        return NumberSums(self.query, self.factor * self.epsilon, n_values=self.n_values).draw(codes, common, bits)


@dataclass(frozen=True, eq=False)
class BoldGrid(DiscreteLaplace):
    factor: float = 2.0

    def draw(self, codes, common, bits):
        return DiscreteLaplace(self.factor * self.epsilon).draw(codes, common, bits)


@dataclass(frozen=True)
class BoldVotes(LNMax):
    factor: float = 2.0

    def _draw(self, votes, bits):
        return Answers(draw_noisy_winners(votes, "laplace", self.scale / self.factor, bits), len(votes))


BOLD = [
    BoldResponse(1.0),
    BoldLaplace(1.0),
    BoldGaussian(1.0, 1e-5),
    BoldHistogram(np.zeros(1, np.int64), 1.0),
    BoldSums(np.ones((1, 1)), 1.0),
    BoldNumbers(np.ones((1, 1)), 1.0, n_values=3),
    BoldGrid(1.0),
    BoldVotes(4.0, 1),
]


@pytest.mark.parametrize("mechanism", BOLD, ids=lambda m: type(m).__name__)
def test_half_the_noise_is_caught(mechanism):
    tails = isinstance(mechanism, BoldGaussian | BoldVotes)  # they differ where little is seen
    audit = audit_mechanism(
        mechanism, pairs=worst_neighbor_pairs(mechanism), draws=1_500_000 if tails else 40_000, confidence=0.99
    )
    assert audit.lower > audit.epsilon
    assert not audit.holds


def test_another_delta_holds_gaussian_noise_to_another_point_of_its_curve():
    """Where delta is large, what is rare hardly matters, and few draws tell much."""
    sound = audit_mechanism(OneHotGaussian(1.0, 1e-5), delta=0.05, draws=40_000, confidence=SURE)
    assert 0 < sound.epsilon < 0.3
    assert sound.holds
    bold = BoldGaussian(1.0, 1e-5)
    assert not audit_mechanism(bold, pairs=worst_neighbor_pairs(bold), delta=0.05, draws=40_000).holds


@pytest.mark.parametrize("mechanism", [replace(m, factor=200.0) for m in BOLD], ids=lambda m: type(m).__name__)
def test_no_noise_is_caught(mechanism):
    assert audit_mechanism(mechanism, pairs=worst_neighbor_pairs(mechanism), draws=4_000).lower > 5


def test_the_audit_finds_that_immutable_is_not_private():
    audit = audit_mechanism(ImmutableArgmax(20.0, 1), delta=1e-5, draws=10_000)
    assert audit.epsilon <= 0.1
    assert audit.lower > 6
    assert not audit.holds


def test_a_label_is_enough_to_break_immutable_votes_of_teachers():
    """Not only votes: ten teachers of one row each, and one label that decides which class is ahead."""
    points = np.ones((10, 1), np.float32)
    common = {"points": points, "queries": np.array([0]), "n_teachers": 10}
    space = ldp.LabelSpace([0, 1])
    here = np.array([0] * 5 + [1] * 5)
    there = here.copy()
    there[0] = 1
    for votes, broken in ((ImmutableArgmax(20.0, 1), True), (LNMax(20.0, 1), False)):
        mechanism = TeacherVotes(aggregator=votes, **common)

        def view(release):
            return [release.codes[0]]

        def fresh(labels, mechanism=mechanism):
            return replace(mechanism, _counts=type(mechanism._counts)())  # each world counts its own votes

        worlds = [
            pair_of_labels(fresh(here), space, here, there, view),
            pair_of_labels(fresh(there), space, here, there, view),
        ]
        pair = type(worlds[0])("ten teachers", lambda world, count, w=worlds: w[world].draw(world, count))
        audit = audit_mechanism(mechanism, pairs=pair, epsilon=0.1, draws=2_000)
        assert audit.holds is not broken


def test_rows_of_a_mechanism_of_ones_own_are_as_many_draws():
    space = ldp.LabelSpace(["a", "b", "c"])
    worlds = pair_of_rows(BoldResponse(1.0), space, (0, 2), lambda release: release.codes)
    assert worlds.draw(0, 50).shape == (50, 1)
    audit = audit_mechanism(BoldResponse(1.0), pairs=worlds, draws=10_000)
    assert audit.worlds == "labels 0 and 2"
    assert not audit.holds


def test_votes_of_teachers_are_audited_by_near_ties():
    votes = LNMax(2.0, 1)
    mechanism = TeacherVotes(np.ones((4, 1), np.float32), np.array([0]), 2, votes)
    assert [w.name for w in worst_neighbor_pairs(mechanism)] == [w.name for w in worst_neighbor_pairs(votes)]
    assert audit_mechanism(mechanism, draws=20_000, confidence=SURE).holds


def test_runs_of_several_queries_are_drawn_as_a_whole():
    audit = audit_mechanism(LNMax(4.0, 8), draws=8_000, confidence=SURE)
    assert audit.epsilon == 4
    assert 0.3 < audit.lower < 4
    stable = StableVote(3.0, 1e-5, 4, 2)
    assert audit_mechanism(stable, draws=400, confidence=SURE).holds


@pytest.mark.parametrize(
    "mechanism",
    [
        CorrectCount(np.zeros(1, np.int64), 1.0),
        BestCandidate(np.zeros((1, 2), np.int64), 1.0),
        HighestScore(np.array([[[0, 7]], [[0, -4]]]), 1.0, "auc", np.array([3])),
        LargestResiduals(np.zeros((1, 2), int), np.array([[0, 1]]), np.array([[0.5, 0.5]]), 1, 1.0),
        LargestResiduals(np.zeros((1, 2), int), np.array([[0, 1]]), np.array([[0.5, 0.25, 0.25]]), 1, 1.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_scores_and_choices_can_be_audited_too(mechanism):
    audit = audit_mechanism(mechanism, draws=3_000, confidence=SURE)
    assert audit.holds
    assert audit.lower > 0.05


@pytest.mark.parametrize("mechanism", [ldp.RandomizedResponse(1.0), OneHotLaplace(1.0), LNMax(2.0, 1)])
def test_a_sound_mechanism_fails_no_more_often_than_stated(mechanism):
    """At a confidence of 90 %, so that a wrong bound would show; counted over many repetitions."""
    repetitions = 300
    failed = sum(not audit_mechanism(mechanism, draws=400, confidence=0.9).holds for _ in range(repetitions))
    assert failed <= binom.ppf(1 - 1e-6, repetitions, 0.1)


@pytest.mark.long
@pytest.mark.parametrize("name", ["rr", "rr-top-k", "laplace", "histogram", "lnmax", "gnmax"])
def test_a_sound_mechanism_fails_no_more_often_than_stated_long(name):
    mechanism, delta = make_mechanism(name, 1.0)
    repetitions = 3_000
    audits = (audit_mechanism(mechanism, delta=delta, draws=2_000, confidence=0.9) for _ in range(repetitions))
    assert sum(not audit.holds for audit in audits) <= binom.ppf(1 - 1e-6, repetitions, 0.1)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda: audit_mechanism("rr"), "An audit takes a mechanism"),
        (lambda: audit_mechanism(BoldResponse(1.0)), "For a mechanism of your own, name the worlds to compare"),
        (lambda: audit_mechanism(ldp.RandomizedResponse(1.0), draws=5), "draws must be a whole number from 100"),
        (lambda: pair_of_votes(LNMax(1.0, 1), (3, 3), (1, 5)), "Neighboring votes differ by one vote"),
        (
            lambda: pair_of_labels(ldp.RandomizedResponse(1.0), ldp.LabelSpace([0, 1]), [0, 0], [1, 1], list),
            "differ in one of them",
        ),
        (lambda: make_mechanism("rrr", 1.0), "no mechanism 'rrr' to audit: choose one of rr, "),
        (lambda: make_mechanism("rr", 1.0, 1e-6), "rr has pure differential privacy: leave delta at 0"),
        (lambda: make_mechanism("rr", 1.0, queries=3), "rr has no queries: leave queries at 1"),
        (lambda: make_mechanism("gaussian", 1.0, 0.0), "delta must be a number above 0"),
        (lambda: make_mechanism("rr", -1.0), "epsilon must be a finite number above zero"),
        (lambda: make_mechanism("rr", 1.0, classes=1), "two or more classes"),
        (lambda: make_mechanism("rr", 1.0, classes=10), "leave classes at 2"),
    ],
)
def test_mistakes_are_named(what, message):
    with pytest.raises(ldp.InputError, match=message):
        what()
