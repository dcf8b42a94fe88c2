"""The exact law of each mechanism, found by driving its stream, compared with the stated epsilon and with the label."""

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Uniform, exact_law

import labeldp as ldp
from labeldp.data.label_bins import optimize_bins
from labeldp.mechanisms import DiscreteLaplace, GroupHistogram, RROnBins, UnbiasedBins
from labeldp.privacy.mechanisms import numeric_responses
from labeldp.privacy.noise import samplers

SPACE = ldp.LabelSpace.range(2.0, 5.0, 0.5)
GRID = np.array(SPACE.classes)
PRIORS = {
    "uniform": np.full(7, 1 / 7),
    "skewed": np.array([0.4, 0.3, 0.15, 0.08, 0.04, 0.02, 0.01]),
    "gaps": np.array([0.5, 0.0, 0.0, 0.2, 0.0, 0.3, 0.0]),
    "one value": np.eye(7)[4],
}
LOSSES = ["squared", "absolute", "poisson"]


class InTurn:
    """Streams one after another: each table look-up starts on the next."""

    def __init__(self, *streams):
        self._left = list(streams)

    def uint16(self, count):
        self._now = self._left.pop(0)
        return self._now.uint16(count)

    def uint64(self, count):
        return self._now.uint64(count)


def answers(mechanism, code, bits, space=SPACE):
    release_fields = dict(space=space, guarantee=None, mechanism="", n_rows=1)
    return int(mechanism.draw(np.array([code], np.int8), release_fields, bits).codes[0])


def law_of_one(mechanism, code, space=SPACE):
    """The law of one answer. A label between two points takes a uniform for the rounding and one for the answer."""
    table = mechanism.tables(space)[0]
    if table.gap[code] == 1:
        return exact_law(lambda bits: answers(mechanism, code, bits, space))
    # The second uniform at 0 leaves the rounded label as it is, which shows what the first one does.
    rounded = exact_law(lambda first: answers(mechanism, code, InTurn(first, Uniform(0)), space))
    law, start = {}, Fraction(0)
    for mass in rounded.values():
        word = math.ceil(start * 2**64)
        answered = exact_law(lambda second, word=word: answers(mechanism, code, InTurn(Uniform(word), second), space))
        for answer, probability in answered.items():
            law[answer] = law.get(answer, 0) + mass * probability
        start += mass
    return law


def channel(mechanism, space=SPACE):
    """P(answer | label) as the implementation samples it: (answers, labels)."""
    out = np.zeros((mechanism.tables(space)[0].outputs.size, len(space)))
    for code in range(len(space)):
        for answer, mass in law_of_one(mechanism, code, space).items():
            out[answer, code] = float(mass)
    return out


def worst_loss(law):
    assert (law > 0).all()
    return float(np.log(law.max(axis=1) / law.min(axis=1)).max())


def mechanisms(epsilon):
    for name, prior in PRIORS.items():
        yield f"unbiased {name}", UnbiasedBins(epsilon, prior)
        for loss in LOSSES:
            yield f"{loss} {name}", RROnBins(epsilon, prior, loss)


@cache
def laws(epsilon):
    return [(name, mechanism, channel(mechanism)) for name, mechanism in mechanisms(epsilon)]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_any_two_labels_are_within_epsilon(epsilon):
    for name, _, law in laws(epsilon):
        assert np.allclose(law.sum(axis=0), 1, atol=1e-15), name
        assert worst_loss(law) <= epsilon * (1 + 1e-12), name


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_stated_epsilon_is_reached(epsilon):
    for mechanism in (
        RROnBins(epsilon, PRIORS["uniform"]),
        UnbiasedBins(epsilon, PRIORS["uniform"]),
    ):
        assert worst_loss(channel(mechanism)) == pytest.approx(epsilon, rel=1e-12)


def test_a_constant_off_by_one_percent_is_noticed(monkeypatch):
    as_fraction = numeric_responses.as_fraction
    monkeypatch.setattr(numeric_responses, "as_fraction", lambda epsilon: as_fraction(epsilon) * 101 / 100)
    for mechanism in (
        RROnBins(1.0, PRIORS["uniform"]),
        UnbiasedBins(1.0, PRIORS["uniform"]),
    ):
        assert worst_loss(channel(mechanism)) > 1.005


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_mean_of_unbiased_answers_is_the_label(epsilon):
    for name, mechanism, law in laws(epsilon):
        if mechanism.unbiased_outputs:
            assert mechanism.tables(SPACE)[0].outputs @ law == pytest.approx(GRID, abs=1e-9), name


def test_rounding_is_exact():
    """At this epsilon only the ends are points, and their law before the noise is a ratio of whole numbers."""
    mechanism = UnbiasedBins(0.5, PRIORS["uniform"])
    table = mechanism.tables(SPACE)[0]
    assert (table.gap[1:-1] == 6).all()
    for code in range(1, 6):
        law = exact_law(lambda first, code=code: answers(mechanism, code, InTurn(first, Uniform(0))))
        assert abs(law[1] - Fraction(code, 6)) <= Fraction(1, 2**63)


def test_evidence_is_the_law_that_was_sampled():
    for name, mechanism, law in laws(1.0):
        release = ldp.Vault([3.0] * 40, SPACE, ldp.Budget(1.0)).release(mechanism)
        assert np.allclose(np.exp(release.log_evidence()), law[release.codes], rtol=1e-6), name
        assert np.array_equal(release.values(), mechanism.tables(SPACE)[0].outputs[release.codes]), name


@pytest.mark.parametrize("loss", LOSSES)
def test_expected_loss_is_that_of_the_law(loss):
    for name, mechanism, law in laws(1.0):
        outputs, prior = mechanism.tables(SPACE)[0].outputs, np.asarray(mechanism.prior)
        if loss == "poisson" and outputs.min() <= 0:
            continue  # the logarithm of an unbiased number below 0
        each = {
            "squared": (outputs[:, None] - GRID) ** 2,
            "absolute": np.abs(outputs[:, None] - GRID),
            "poisson": outputs[:, None] - GRID * np.log(np.maximum(outputs[:, None], 1e-9)),
        }[loss]
        expected = prior @ (law * each).sum(axis=0)
        assert mechanism.expected_loss(SPACE, loss=loss) == pytest.approx(expected, abs=1e-9), name


def test_the_loss_found_by_the_search_is_that_of_the_mechanism():
    for loss in LOSSES:
        for prior in PRIORS.values():
            mechanism = RROnBins(1.5, prior, loss=loss)
            min_loss = optimize_bins(GRID, prior, 1.5, loss).loss
            assert mechanism.expected_loss(SPACE, loss=loss) == pytest.approx(min_loss, abs=1e-12)


def test_expected_loss_under_another_prior():
    mechanism = RROnBins(1.0, PRIORS["skewed"])
    right = RROnBins(1.0, PRIORS["uniform"]).expected_loss(SPACE)
    assert mechanism.expected_loss(SPACE, PRIORS["uniform"]) > right > mechanism.expected_loss(SPACE)


@given(st.lists(st.integers(0, 9), min_size=7, max_size=7).filter(any), st.floats(0.1, 6))
@settings(max_examples=40)
def test_bins_are_never_worse_than_randomized_response_or_noise(weights, epsilon):
    prior = np.array(weights) / sum(weights)
    best = RROnBins(epsilon, prior).expected_loss(SPACE)
    other = 1 / (math.exp(epsilon) + 6)
    plain = float(prior @ (other * (GRID[:, None] - GRID) ** 2).sum(axis=0))
    assert best <= plain + 1e-12
    assert best <= DiscreteLaplace(epsilon).expected_loss(SPACE, prior) + 1e-12


def test_single_values_are_plain_randomized_response():
    """With a uniform prior and a large epsilon every value is a bin, and the answers have the same law."""
    mechanism = RROnBins(6.0, PRIORS["uniform"], loss="absolute")
    assert np.array_equal(mechanism.tables(SPACE)[0].outputs, GRID)
    release = ldp.Vault([3.0], SPACE, ldp.Budget(6.0)).release(ldp.RandomizedResponse(6.0))
    assert np.allclose(channel(mechanism), release.noise_matrix(), atol=1e-15)


# Groups


def test_each_group_has_its_own_bins():
    groups = np.arange(4000) % 3
    priors = np.array([PRIORS["uniform"], PRIORS["one value"], PRIORS["skewed"]])
    labels, chosen = GRID[np.arange(4000) % 7], np.arange(4000) % 5 != 1
    for kind in (RROnBins, UnbiasedBins):
        release = ldp.Vault(labels, SPACE, ldp.Budget(2.0)).release(
            kind(2.0, priors, groups=groups), row_selection=chosen
        )
        for group, prior in enumerate(priors):
            here = chosen & (groups == group)
            alone = kind(2.0, prior)
            table = alone.tables(SPACE)[0]
            assert set(release.values()[here]) <= set(table.outputs)
            law = channel(alone)
            assert np.allclose(np.exp(release.log_evidence(here)), law[release.codes[here]], rtol=1e-6)
            for code in range(7):
                seen = np.bincount(release.codes[here & (labels == GRID[code])], minlength=len(law))
                assert np.abs(seen / seen.sum() - law[:, code]).max() < 6 * 0.5 / math.sqrt(seen.sum())


def test_groups_cost_the_mean_of_their_losses():
    priors = np.array([PRIORS["uniform"], PRIORS["skewed"]])
    mechanism = RROnBins(1.0, priors, groups=[0, 0, 0, 1])
    each = [RROnBins(1.0, prior).expected_loss(SPACE) for prior in priors]
    assert mechanism.expected_loss(SPACE) == pytest.approx(0.75 * each[0] + 0.25 * each[1])


def test_equal_priors_are_searched_once(monkeypatch):
    seen = []
    search = numeric_responses.optimize_bins
    monkeypatch.setattr(numeric_responses, "optimize_bins", lambda *a: seen.append(1) or search(*a))
    mechanism = RROnBins(1.0, np.tile(PRIORS["skewed"], (50, 1)), groups=np.arange(50))
    ldp.Vault([2.0] * 50, SPACE, ldp.Budget(1.0)).release(mechanism)
    assert len(seen) == 1


# Noise


def cut_law(monkeypatch, epsilon):
    """P(answer | label) of DiscreteLaplace, from the edges of the table that its sampler uses."""
    scales = []

    def fixed(x):
        def draw(scale, count, bits):
            scales.append(scale)
            return np.full(count, x, np.int64)

        return draw

    law = np.zeros((7, 7))
    drawn = numeric_responses.discrete_laplace
    for code in range(7):
        for x in range(-7, 8):
            monkeypatch.setattr(numeric_responses, "discrete_laplace", fixed(x))
            answer = answers(DiscreteLaplace(epsilon), code, None)
            assert answer == min(max(code + x, 0), 6)
    monkeypatch.setattr(numeric_responses, "discrete_laplace", drawn)
    table = samplers._geometric_start(1 / scales[0])
    edges = [0, *[edge.floor(200)[0] for edge in table._edges], 2**200]
    geometric = np.array([float(Fraction(b - a, 2**200)) for a, b in pairwise(edges)])
    both, reach = np.convolve(geometric, geometric[::-1]), len(geometric) - 1
    for code in range(7):
        np.add.at(law[:, code], np.clip(code + np.arange(-reach, reach + 1), 0, 6), both)
    return law


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_noise_loses_epsilon_and_no_more(monkeypatch, epsilon):
    law = cut_law(monkeypatch, epsilon)
    assert np.allclose(law.sum(axis=0), 1, atol=1e-12)
    assert worst_loss(law) == pytest.approx(epsilon, rel=1e-9)
    release = ldp.Vault(GRID, SPACE, ldp.Budget(epsilon)).release(DiscreteLaplace(epsilon))
    assert np.allclose(np.exp(release.log_evidence()), law[release.codes], rtol=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_mean_of_noise_before_the_cut_is_the_label(monkeypatch, epsilon):
    law = cut_law(monkeypatch, epsilon)
    numbers = ldp.releases.numeric.unbiased_grid(GRID, 6 / epsilon)
    assert numbers @ law == pytest.approx(GRID, abs=1e-9)
    prior, mechanism = PRIORS["skewed"], DiscreteLaplace(epsilon)
    for outputs, unbiased in ((GRID, False), (numbers, True)):
        expected = prior @ (law * (outputs[:, None] - GRID) ** 2).sum(axis=0)
        assert mechanism.expected_loss(SPACE, prior, unbiased=unbiased) == pytest.approx(expected, rel=1e-9)


# In the vault


def every(epsilon):
    prior = PRIORS["skewed"]
    return [
        RROnBins(epsilon, prior),
        RROnBins(epsilon, np.array([prior, prior[::-1]]), groups=np.array([0, 1, 1, 0])),
        UnbiasedBins(epsilon, prior),
        DiscreteLaplace(epsilon),
    ]


def test_missing_and_unchosen_rows_stay_out():
    space = ldp.LabelSpace.range(2.0, 5.0, 0.5, missing="public")
    for mechanism in every(1.0):
        release = ldp.Vault([2.0, None, 3.0, 5.0], space, ldp.Budget(1.0)).release(mechanism, row_selection=[1, 2, 3])
        assert (release.labels() == -1).tolist() == [True, True, False, False]
        assert np.isnan(release.values()).tolist() == [True, True, False, False]
        assert not release.log_evidence([0, 1]).any()


def test_a_user_loses_epsilon_for_each_label():
    for mechanism in every(0.5):
        vault = ldp.Vault([2.0, 3.0, 4.0, 5.0], SPACE, ldp.Budget(2.0), users=["a", "a", "a", "b"])
        release = vault.release(mechanism)
        assert (release.guarantee.epsilon, release.guarantee.unit) == (1.5, "user")
        assert release.guarantee.trust == "local"
        assert vault.guarantee().epsilon == 1.5


def test_the_same_request_is_the_stored_release():
    vault = ldp.Vault([2.0, 3.0, 4.0, 5.0], SPACE, ldp.Budget(9.0))
    for spent, (first, again) in enumerate(zip(every(1.0), every(1.0), strict=True), 1):
        assert vault.release(first).entry == vault.release(again).entry
        assert vault.guarantee().epsilon == spent
    assert vault.release(RROnBins(1.0, PRIORS["skewed"], loss="absolute")).parameters["objective"] == "absolute"
    assert vault.guarantee().epsilon == 5


def test_disjoint_rows_do_not_add_up_their_costs():
    vault = ldp.Vault([2.0, 3.0, 4.0, 5.0], SPACE, ldp.Budget(1.0))
    vault.release(RROnBins(1.0, PRIORS["skewed"]), row_selection=[0, 1])
    vault.release(UnbiasedBins(1.0, PRIORS["skewed"]), row_selection=[2, 3])
    assert vault.guarantee().epsilon == 1.0


def test_a_prior_can_come_from_a_private_histogram():
    labels = np.random.default_rng(0).choice(GRID, 3000, p=PRIORS["skewed"])
    vault = ldp.Vault(labels, SPACE, ldp.Budget(1.0))
    counts = vault.release(GroupHistogram(np.zeros(3000, int), 0.1))
    mechanism = RROnBins(0.9, counts.class_probabilities[0])
    release = vault.release(mechanism, derived_from=[counts])
    assert release.guarantee.epsilon == pytest.approx(1.0)
    blind = RROnBins(1.0, PRIORS["uniform"])
    assert ((release.values() - labels) ** 2).mean() < 0.9 * blind.expected_loss(SPACE, PRIORS["skewed"])


def test_a_failed_search_costs_nothing(monkeypatch):
    def broken(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(numeric_responses, "optimize_bins", broken)
    vault = ldp.Vault([2.0], SPACE, ldp.Budget(1.0))
    with pytest.raises(KeyboardInterrupt):
        vault.release(RROnBins(1.0, PRIORS["skewed"]))
    assert vault.guarantee().epsilon == 0


def test_the_prior_is_copied():
    prior = PRIORS["uniform"].copy()
    mechanism = RROnBins(1.0, prior)
    before = mechanism.parameters()
    prior[:] = PRIORS["one value"]
    assert mechanism.parameters() == before
    with pytest.raises(ValueError, match="read-only"):
        mechanism.prior[0] = 1.0


# What is refused


def refused(mechanism, match, space=SPACE, labels=(2.0, 3.0)):
    vault = ldp.Vault(list(labels), space, ldp.Budget(1.0))
    with pytest.raises(ldp.InputError, match=match) as error:
        vault.release(mechanism)
    assert str(error.value).count(".") - str(error.value).count("LabelSpace.") == 1
    assert vault.guarantee().epsilon == 0


def test_classes_are_no_range():
    space = ldp.LabelSpace([2, 3])
    for mechanism in (
        RROnBins(1.0, [0.5, 0.5]),
        UnbiasedBins(1.0, [0.5, 0.5]),
        DiscreteLaplace(1.0),
    ):
        refused(mechanism, "needs numbers: declare LabelSpace.range", space, [2, 3])


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("classes", [[1, 2, 3, 4, 5], ["1", "2", "5"], [-3, 0, 10, 11]], ids=str)
def test_ordered_classes_that_are_numbers_may_go_into_bins(classes, epsilon):
    space, prior = ldp.LabelSpace(classes, ordered=True), np.full(len(classes), 1 / len(classes))
    mechanism = RROnBins(epsilon, prior)
    law = channel(mechanism, space)
    assert np.allclose(law.sum(axis=0), 1, atol=1e-15)
    assert worst_loss(law) == pytest.approx(epsilon, rel=1e-12)
    release = ldp.Vault(classes * 9, space, ldp.Budget(epsilon)).release(mechanism)
    assert np.allclose(np.exp(release.log_evidence()), law[release.codes], rtol=1e-6)
    assert set(release.labels()) <= set(range(len(classes)))
    for other in (UnbiasedBins(epsilon, prior), DiscreteLaplace(epsilon)):
        refused(other, "needs numbers: declare LabelSpace.range", space, classes)


@pytest.mark.parametrize("kind", [RROnBins, UnbiasedBins])
def test_bad_priors(kind):
    refused(kind(1.0, np.full(5, 0.2)), r"shape \(5,\).* each of the 7 values")
    refused(kind(1.0, 1.0), r"shape \(\)")
    refused(kind(1.0, np.full((1, 1, 7), 1 / 7)), "shape")
    refused(kind(1.0, np.array([1.5, -0.5, 0, 0, 0, 0, 0])), "negative or missing")
    refused(kind(1.0, np.array([1, np.nan, 0, 0, 0, 0, 0])), "negative or missing")
    refused(kind(1.0, np.full(7, 0.2)), "sum to 1")
    with pytest.raises(ldp.InputError, match="array of numbers"):
        kind(1.0, "uniform")


@pytest.mark.parametrize("kind", [RROnBins, UnbiasedBins])
def test_bad_groups(kind):
    priors = np.full((2, 7), 1 / 7)
    refused(kind(1.0, priors), "give groups")
    refused(kind(1.0, priors[0], groups=[0, 0]), "one row for each group")
    refused(kind(1.0, priors, groups=[0, 1, 1]), "each of the 2 rows")
    refused(kind(1.0, priors, groups=[0.0, 1.0]), "whole number")
    refused(kind(1.0, priors, groups=[0, 2]), "from 0 to 1")
    refused(kind(1.0, priors, groups=[-1, 0]), "from 0 to 1")


def test_bad_losses_and_ranges():
    with pytest.raises(ldp.InputError, match='"squared", "absolute" or "poisson"'):
        RROnBins(1.0, PRIORS["uniform"], loss="huber")
    with pytest.raises(ldp.InputError, match="loss must be"):
        RROnBins(1.0, PRIORS["uniform"]).expected_loss(SPACE, loss="huber")
    below = ldp.LabelSpace.range(-1, 1, 1)
    refused(RROnBins(1.0, np.full(3, 1 / 3), loss="poisson"), "from 0", below, [0.0, 1.0])
    fine = ldp.LabelSpace.range(0, 1, 1e-4)
    refused(RROnBins(1.0, np.full(10001, 1 / 10001)), "widen the step", fine, [0.0, 1.0])
    with pytest.raises(ldp.InputError, match="one distribution"):
        DiscreteLaplace(1.0).expected_loss(SPACE, np.full((2, 7), 1 / 7))


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, "1", True, None])
def test_bad_epsilon(epsilon):
    for make in (
        DiscreteLaplace,
        lambda e: RROnBins(e, [1.0]),
        lambda e: UnbiasedBins(e, [1.0]),
    ):
        with pytest.raises(ldp.InputError, match="epsilon must be"):
            make(epsilon)


def test_the_poisson_loss_of_an_answer_of_zero_is_zero_or_infinite():
    space, one_value = ldp.LabelSpace.range(0, 2, 1), np.array([1.0, 0.0, 0.0])
    mechanism = RROnBins(1.0, one_value, loss="poisson")
    assert mechanism.expected_loss(space, loss="poisson") == 0.0
    assert mechanism.expected_loss(space, [0.0, 1.0, 0.0], loss="poisson") == math.inf


def test_numbers_that_are_written_as_texts_have_the_same_expected_loss():
    prior = [0.5, 0.2, 0.3]
    numbers, texts = (ldp.LabelSpace(classes, ordered=True) for classes in ([1, 2, 5], ["1", "2", "5"]))
    mechanism = RROnBins(1.0, prior)
    assert mechanism.expected_loss(texts) == mechanism.expected_loss(numbers) > 0


def test_bins_keep_the_delta_that_they_are_given():
    """A user with many labels is charged with it, so that it must not get lost."""
    mechanism = RROnBins(0.01, [0.5, 0.5], delta=1e-6)
    assert mechanism.delta == mechanism.with_epsilon(0.02).delta == 1e-6
    assert mechanism.price(100)[1] == Fraction(1, 10**6)
    assert mechanism.price(100)[0] < 1


def test_the_loss_found_by_the_search_is_that_of_the_mechanism_below_one():
    space, prior = ldp.LabelSpace.range(0, 1, 0.25), np.array([0.3, 0.3, 0.2, 0.1, 0.1])
    for epsilon in (0.5, 2.0, 6.0):
        min_loss = optimize_bins(np.array(space.classes), prior, epsilon, "poisson").loss
        mechanism = RROnBins(epsilon, prior, loss="poisson")
        assert mechanism.expected_loss(space, loss="poisson") == pytest.approx(min_loss, rel=1e-9)
