import math

import numpy as np
import pytest

from labeldp.core.guarantee import best_guess
from labeldp.releases.responses import response_chances
from labeldp.report.card.numbers import (
    at_least,
    at_most,
    band,
    nearest_guess,
    number,
    one_in,
    percent,
)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_no_guesser_does_better_than_stated(epsilon, classes):
    kept, other = response_chances(epsilon, classes)
    channel = np.full((classes, classes), other) + (kept - other) * np.eye(classes)
    assert np.allclose(channel.sum(axis=0), 1)
    assert kept / other == pytest.approx(math.exp(epsilon))
    for prior in (0.5, 0.1, 0.01):
        belief = np.full(classes, (1 - prior) / (classes - 1))
        belief[0] = prior
        posterior = channel * belief / (channel @ belief)[:, None]
        assert posterior[:, 0].max() <= best_guess(epsilon, prior) + 1e-12


def test_what_is_not_private_keeps_every_label():
    assert response_chances(math.inf, 10) == (1.0, 0.0)
    assert best_guess(math.inf, 0.01) == 1.0


@pytest.mark.parametrize(
    ("epsilon", "name"),
    [(0.05, "very strong"), (1.0, "strong"), (2.0, "moderate"), (8.0, "weak"), (9.0, "hardly any"), (math.inf, "none")],
)
def test_bands(epsilon, name):
    assert band(epsilon) == name


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"),
        (0.00123, "0.12%"),
        (0.027, "2.7%"),
        (0.5, "50%"),
        (0.731, "73%"),
        (0.9933, "99.3%"),
        (0.99966, "99.97%"),
        (1 - 1e-9, "nearly 100%"),
        (1.0, "100%"),
    ],
)
def test_shares_in_few_digits(share, text):
    assert percent(share) == text


def test_bounds_are_rounded_to_their_safe_side():
    assert (at_most(1.998725), at_least(1.998725)) == ("1.999", "1.99")
    assert (at_most(0.1 + 0.2), at_least(0.7)) == ("0.3", "0.7")
    assert (at_most(math.inf), at_least(math.inf), at_most(0.0), at_least(-1.0)) == ("infinite", "infinite", "0", "0")
    for value in np.random.default_rng(0).lognormal(0, 3, 2000):
        assert float(at_most(value)) >= value * (1 - 1e-9)
        assert float(at_least(value)) <= value * (1 + 1e-9)


def test_numbers_of_files():
    assert [number(x) for x in (1, "2.5", "inf", None, "x", True, [], "nan")] == [1, 2.5, math.inf, *[None] * 5]
    assert one_in(1e-5) == "one in 100,000"


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_a_guess_of_one_number_of_two_is_as_near_as_its_chance_allows(epsilon):
    wrong = 1 / (1 + math.exp(epsilon))
    off, without = nearest_guess(epsilon, 3.0, 2)
    assert off == pytest.approx(3 * math.sqrt(wrong * (1 - wrong)))  # the deviation of what is left open
    assert without == pytest.approx(1.5)


def test_more_values_than_are_searched_change_little():
    assert nearest_guess(1.0, 1.0, 10_000) == pytest.approx(nearest_guess(1.0, 1.0, 200), rel=0.01)
