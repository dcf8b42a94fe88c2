"""Users with several labels: the enumerated joint law of their releases, compared with the charge."""

import math
from functools import reduce
from itertools import product

import numpy as np
import pytest
from countlaws import noise_law, winners
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from scripted import Seeded, exact_law

import labeldp as ldp
from labeldp.accounting.losses import gaussian_delta
from labeldp.mechanisms import (
    BestCandidate,
    CorrectCount,
    DiscreteLaplace,
    GroupHistogram,
    HighestScore,
    LinearQuery,
    OneHotGaussian,
    OneHotLaplace,
    RRMaxInformation,
    RROnBins,
    RRTopK,
    RRWithPrior,
    UnbiasedBins,
)
from labeldp.privacy.mechanisms import linear, selection
from labeldp.privacy.mechanisms import one_hot as additive
from labeldp.privacy.mechanisms.base import divide_epsilon

SEVERAL = [1, 2, 3]
EPSILON, DELTA = 0.9, 1e-5
THREE, RANGE, ENDS = ldp.LabelSpace([0, 1, 2]), ldp.LabelSpace.range(0, 2, 1), ldp.LabelSpace.range(0, 1, 1)
PRIOR = np.array([[0.45, 0.35, 0.2]])  # two candidates at any of the epsilons below


def release_fields(space, rows):
    return dict(space=space, guarantee=None, mechanism="", n_rows=rows)


def sampled(mechanism, space):
    """P(answer | label) of one row, as the code samples it: (answers, labels)."""
    law = np.zeros((len(space), len(space)))
    for label in range(len(space)):
        codes = np.array([label], np.int8)
        one = exact_law(lambda bits, codes=codes: int(mechanism.draw(codes, release_fields(space, 1), bits).codes[0]))
        for answer, mass in one.items():
            law[answer, label] = float(mass)
    return law[law.any(axis=1)]


def cut_noise(mechanism, space):
    """The law of a number with discrete Laplace noise that is cut at the ends of the range."""
    last = len(space) - 1
    x, mass = noise_law(last / mechanism.epsilon, 400)
    return np.stack(
        [np.bincount(np.clip(x + label, 0, last), mass, minlength=last + 1) for label in range(last + 1)], axis=1
    )


def one_hot_noise(mechanism, space, reach=3):
    """The law of noisy one-hot rows, in a window: what lies outside has the ratios of its edge."""
    mass = noise_law(2 * mechanism.height / mechanism.epsilon, reach + mechanism.height)[1]
    values = list(product(range(-reach, reach + 1), repeat=len(space)))
    center = reach + mechanism.height
    return np.array(
        [
            [math.prod(mass[center + v - mechanism.height * (i == c)] for i, v in enumerate(value)) for c in space]
            for value in values
        ]
    )


BY_LABEL = {
    "RandomizedResponse": (ldp.RandomizedResponse, sampled, THREE),
    "RRTopK": (lambda e: RRTopK(e, PRIOR, k=2), sampled, THREE),
    "RRWithPrior": (lambda e: RRWithPrior(e, PRIOR), sampled, THREE),
    "RRMaxInformation": (lambda e: RRMaxInformation(e, PRIOR), sampled, THREE),
    "OneHotLaplace": (OneHotLaplace, one_hot_noise, ldp.LabelSpace([0, 1])),
    "RROnBins": (lambda e: RROnBins(e, np.full(3, 1 / 3)), sampled, RANGE),
    "UnbiasedBins": (lambda e: UnbiasedBins(e, np.full(2, 1 / 2)), sampled, ENDS),
    "DiscreteLaplace": (DiscreteLaplace, cut_noise, RANGE),
}


def joint(law, labels):
    """The law of all answers of a user with these labels."""
    return reduce(np.kron, [law[:, label] for label in labels])


def worst_loss(law, labels):
    """The largest log-ratio of any joint answer between any two ways to fill in a user's labels."""
    laws = [joint(law, each) for each in product(range(law.shape[1]), repeat=labels)]
    return max(np.log(one / other).max() for one in laws for other in laws)


@pytest.mark.parametrize("labels", SEVERAL)
@pytest.mark.parametrize("name", BY_LABEL)
def test_a_user_loses_what_all_labels_together_are_charged(name, labels):
    make, law_of, space = BY_LABEL[name]
    requested = make(EPSILON)
    for mechanism in (requested, requested.scaled_to_unit(labels)):
        charged, delta = mechanism.price(labels)
        assert delta == 0
        lost = worst_loss(law_of(mechanism, space), labels)
        assert lost <= float(charged) * (1 + 1e-9)
        assert lost == pytest.approx(float(charged), rel=1e-9)  # and the charge is no larger than needed
    assert charged <= requested.price()[0]
    assert float(charged) == pytest.approx(EPSILON, rel=1e-12)
    assert type(mechanism) is type(requested)


@pytest.mark.parametrize("name", ["RandomizedResponse", "RRWithPrior", "RRTopK"])
def test_the_labels_of_a_user_are_drawn_independently(name):
    """Pairs of equal labels, by the thousands: the joint law of a pair is the product of its two."""
    make, law_of, space = BY_LABEL[name]
    one = law_of(make(EPSILON), space)[:, 0]
    rows = 12_000
    prior = {} if name == "RandomizedResponse" else {"prior": np.repeat(PRIOR, rows, axis=0)}
    mechanism = make(EPSILON).with_epsilon(EPSILON, **prior)
    codes = mechanism.draw(np.zeros(rows, np.int8), release_fields(space, rows), Seeded(3)).codes.reshape(-1, 2)
    pairs = np.unique(codes[:, 0] * 3 + codes[:, 1], return_counts=True)[1]
    assert chisquare(pairs, rows / 2 * np.kron(one, one)).pvalue > 1e-4


# Counts: the noise has the scale that the code requests.


@pytest.fixture
def widths(monkeypatch):
    """Switch the noise off and return the list of requested scales."""
    scales = []

    def nothing(width, count, bits):
        scales.append(float(width))
        return np.zeros(count, np.int64)

    for module in (selection, linear, additive):
        for name in ("discrete_laplace", "discrete_gaussian"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, nothing)
    return scales


def drawn(mechanism, labels, widths, space=None):
    """The numbers that the mechanism noises for these labels, and the width of its noise."""
    release = mechanism.draw(np.array(labels, np.int8), release_fields(space or THREE, len(labels)), Seeded(0))
    values = (
        release.n_correct
        if hasattr(release, "n_correct")
        else getattr(release, "counts", getattr(release, "moments", 0))
    )
    return np.atleast_1d(values).ravel(), widths[-1]


def summed_loss(move, width):
    """The largest log-ratio of independent noisy integers that are moved so far."""
    _, mass = noise_law(width, 60)
    lost = 0.0
    for step in np.abs(move).astype(int):
        lost += np.abs(np.log(mass[step:] / mass[: mass.size - step])).max()
    return lost


COUNTS = {
    "CorrectCount": lambda e, m: CorrectCount(np.zeros(m, int), e),
    "GroupHistogram": lambda e, m: GroupHistogram(np.arange(m) % 2, e),
    "one group": lambda e, m: GroupHistogram(np.zeros(m, int), e),
}


@pytest.mark.parametrize("labels", SEVERAL)
@pytest.mark.parametrize("name", COUNTS)
def test_a_user_loses_what_moved_counts_are_charged(name, labels, widths):
    requested = COUNTS[name](EPSILON, labels)
    for mechanism in (requested, requested.scaled_to_unit(labels)):
        charged = float(mechanism.price(labels)[0])
        filled = [drawn(mechanism, each, widths) for each in product(range(3), repeat=labels)]
        lost = max(summed_loss(one - other, width) for one, width in filled for other, _ in filled)
        assert lost == pytest.approx(charged, rel=1e-9)
    assert mechanism.price(labels)[0] <= requested.price()[0]
    assert charged == pytest.approx(EPSILON, rel=1e-12)


@pytest.mark.parametrize("labels", SEVERAL)
def test_a_user_loses_what_moved_sums_are_charged(labels, widths):
    requested = LinearQuery(np.array([[0.6, 0.8], [1.0, 0.0], [0.6, 0.8]])[:labels], EPSILON)
    for mechanism in (requested, requested.scaled_to_unit(labels)):
        filled = [drawn(mechanism, each, widths) for each in product(range(2), repeat=labels)]
        # Far out, each step of the noise costs 1 / width.
        lost = max(np.abs(one - other).sum() / width for one, width in filled for other, _ in filled)
        assert lost <= float(mechanism.price(labels)[0]) * (1 + 1e-12)
        assert lost > 0.7 * float(mechanism.price(labels)[0])  # rows differ in length (l1)
    assert float(mechanism.price(labels)[0]) == pytest.approx(EPSILON, rel=1e-12)


CHOICES = {
    "BestCandidate": lambda m: BestCandidate(np.tile([0, 1], (m, 1)), EPSILON),
    "HighestScore": lambda m: HighestScore(np.tile([[[1, 0, 0]], [[0, 1, 0]]], (1, m, 1)), EPSILON),
}


@pytest.mark.parametrize("labels", SEVERAL)
@pytest.mark.parametrize("name", CHOICES)
def test_a_user_loses_what_a_choice_is_charged(name, labels, widths):
    requested = CHOICES[name](labels)
    for mechanism in (requested, requested.scaled_to_unit(labels)):
        charged = float(mechanism.price(labels)[0])
        width = drawn(mechanism, [0] * labels, widths)[1]
        lost = []
        for counts in ([6, 6], [6, 3], [4, 9], [0, 30]):
            law = winners(counts, 2 / width)
            for move in product(range(-labels, labels + 1), repeat=2):
                lost.append(np.abs(np.log(winners(np.add(counts, move), 2 / width) / law)).max())
        assert 0.7 * charged < max(lost) <= charged * (1 + 1e-9)
    assert charged == pytest.approx(EPSILON, rel=1e-12)


# Gaussian noise: delta by direct sums.


def gaussian_delta_of(move, sigma, epsilon):
    """P(loss above epsilon), less exp(epsilon) times that of the neighbour, for noisy integers moved by `move`."""
    reach = math.ceil(14 * sigma)
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x**2) / (2 * sigma**2))
    mass /= mass.sum()
    total = np.ones(1)  # the law of the sum of move * noise
    for step in np.abs(move):
        stretched = np.zeros(2 * reach * step + 1)
        stretched[::step] = mass
        total = np.convolve(total, stretched)
    value = np.arange(total.size) - total.size // 2
    loss = (np.square(move).sum() - 2 * value) / (2 * sigma**2)
    return float(total @ np.maximum(-np.expm1(epsilon - loss), 0.0))


GAUSSIAN = {
    "OneHotGaussian": lambda m: OneHotGaussian(EPSILON, DELTA),
    "GroupHistogram": lambda m: GroupHistogram(np.arange(m) % 2, EPSILON, DELTA),
    "one group": lambda m: GroupHistogram(np.zeros(m, int), EPSILON, DELTA),
}


@pytest.mark.parametrize("labels", SEVERAL)
@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_noise_protects_a_user_as_charged(name, labels, widths):
    requested = GAUSSIAN[name](labels)
    for mechanism in (requested, requested.scaled_to_unit(labels)):
        epsilon, delta = map(float, mechanism.price(labels))
        assert delta == DELTA
        moves = set()
        for one, other in product(product(range(2), repeat=labels), repeat=2):
            if name == "OneHotGaussian":
                move = [s for a, b in zip(one, other, strict=True) if a != b for s in (1, -1)]
                width = mechanism.sigma
            else:
                (here, width), (there, _) = drawn(mechanism, one, widths), drawn(mechanism, other, widths)
                move = (here - there)[here != there].tolist()
            moves.add(tuple(move))
        found = [gaussian_delta_of(np.array(move, int), width, epsilon) for move in moves if move]
        assert max(found) <= DELTA
    if name != "GroupHistogram" or labels == 1:  # two groups share the move, and the bound is for one
        assert max(found) > 0.75 * DELTA
    assert mechanism.price(labels) <= requested.price()
    assert float(mechanism.price(labels)[0]) == pytest.approx(EPSILON, rel=2e-3)


@pytest.mark.parametrize("labels", SEVERAL)
def test_gaussian_sums_protect_a_user_as_charged(labels, widths):
    requested = LinearQuery(np.tile([0.6, 0.8], (labels, 1)), EPSILON, DELTA)
    mechanism = requested.scaled_to_unit(labels)
    (here, width), (there, _) = drawn(mechanism, [0] * labels, widths), drawn(mechanism, [1] * labels, widths)
    found = gaussian_delta(EPSILON, width / np.linalg.norm(here - there))
    assert 0.99 * DELTA < found <= DELTA


def test_one_hot_noise_is_drawn_with_that_deviation(widths):
    mechanism = OneHotGaussian(EPSILON, DELTA).scaled_to_unit(3)
    mechanism.draw(np.zeros(3, np.int8), release_fields(THREE, 3), Seeded(0))
    assert widths == [mechanism.sigma]
    laplace = OneHotLaplace(EPSILON).scaled_to_unit(3)
    laplace.draw(np.zeros(3, np.int8), release_fields(THREE, 3), Seeded(0))
    assert widths[-1] == pytest.approx(2 / laplace.epsilon)


# Delta for many labels.


@pytest.mark.parametrize(("labels", "pays"), [(1, False), (3, False), (60, True)])
def test_delta_is_spent_where_it_lowers_the_noise_of_many_labels(labels, pays):
    mechanism = ldp.RandomizedResponse(1.0).scaled_to_unit(labels, 1e-6)
    assert (mechanism.delta > 0) == pays
    assert (mechanism.epsilon > 1.01 / labels) == pays
    assert mechanism.price(labels)[0] <= 1
    assert float(mechanism.price(labels)[0]) == pytest.approx(1, rel=2e-4)
    assert mechanism.price(1) == (mechanism.price(1)[0], 0)  # one label needs none


def test_many_labels_at_delta_lose_epsilon_by_their_binomial_law():
    """The number of responses in favor of one of two neighbors decides. The sum uses Python integers."""
    labels, delta = 60, 1e-6
    mechanism = ldp.RandomizedResponse(1.0).scaled_to_unit(labels, delta)
    law = sampled(mechanism, ldp.LabelSpace([0, 1]))
    p, q = law[0]
    here = [math.comb(labels, k) * p**k * q ** (labels - k) for k in range(labels + 1)]
    found = sum(max(0.0, one - math.exp(1.0) * other) for one, other in zip(here, here[::-1], strict=True))
    assert 0.95 * delta < found <= delta


def test_a_delta_of_zero_is_not_spent():
    mechanism = OneHotLaplace(1.0).scaled_to_unit(60)
    assert (mechanism.delta, mechanism.price(60)[1]) == (0.0, 0)
    assert "delta" not in mechanism.parameters()
    assert OneHotLaplace(1.0).scaled_to_unit(60, 1e-6).parameters()["delta"] == 1e-6


# Decimals.


@given(st.floats(1e-3, 50), st.integers(1, 200))
@settings(max_examples=200)
def test_parts_of_epsilon_never_add_up_to_more(epsilon, parts):
    part = divide_epsilon(epsilon, parts)
    assert ldp.RandomizedResponse(part).price(parts)[0] <= ldp.RandomizedResponse(epsilon).price()[0]
    above = math.nextafter(part, math.inf)
    assert ldp.RandomizedResponse(above).price(parts)[0] > ldp.RandomizedResponse(epsilon).price()[0]


@pytest.mark.parametrize("name", BY_LABEL)
def test_one_label_changes_nothing(name):
    requested = BY_LABEL[name][0](EPSILON)
    assert requested.scaled_to_unit(1, DELTA).parameters() == requested.parameters()
