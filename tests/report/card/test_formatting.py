import math

import numpy as np
import pytest

from labeldp.core.guarantee import max_guess_accuracy
from labeldp.releases.responses import response_probabilities
from labeldp.report.card.formatting import (
    band,
    best_guess_error,
    format_lower,
    format_odds,
    format_upper,
    parse_number,
    percent,
)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_no_guesser_does_better_than_stated(epsilon, classes):
    unchanged, other = response_probabilities(epsilon, classes)
    channel = np.full((classes, classes), other) + (unchanged - other) * np.eye(classes)
    assert np.allclose(channel.sum(axis=0), 1)
    assert unchanged / other == pytest.approx(math.exp(epsilon))
    for prior in (0.5, 0.1, 0.01):
        belief = np.full(classes, (1 - prior) / (classes - 1))
        belief[0] = prior
        posterior = channel * belief / (channel @ belief)[:, None]
        assert posterior[:, 0].max() <= max_guess_accuracy(epsilon, prior) + 1e-12


def test_without_privacy_every_label_is_unchanged():
    assert response_probabilities(math.inf, 10) == (1.0, 0.0)
    assert max_guess_accuracy(math.inf, 0.01) == 1.0


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
    assert (format_upper(1.998725), format_lower(1.998725)) == ("1.999", "1.99")
    assert (format_upper(0.1 + 0.2), format_lower(0.7)) == ("0.3", "0.7")
    assert (format_upper(math.inf), format_lower(math.inf), format_upper(0.0), format_lower(-1.0)) == (
        "infinite",
        "infinite",
        "0",
        "0",
    )
    for value in np.random.default_rng(0).lognormal(0, 3, 2000):
        assert float(format_upper(value)) >= value * (1 - 1e-9)
        assert float(format_lower(value)) <= value * (1 + 1e-9)


def test_numbers_of_files():
    assert [parse_number(x) for x in (1, "2.5", "inf", None, "x", True, [], "nan")] == [1, 2.5, math.inf, *[None] * 5]
    assert format_odds(1e-5) == "one in 100,000"


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_best_guess_of_one_of_two_numbers_has_the_smallest_possible_error(epsilon):
    wrong = 1 / (1 + math.exp(epsilon))
    off, without = best_guess_error(epsilon, 3.0, 2)
    assert off == pytest.approx(3 * math.sqrt(wrong * (1 - wrong)))  # the deviation of what is left open
    assert without == pytest.approx(1.5)


def test_more_values_than_are_searched_change_little():
    assert best_guess_error(1.0, 1.0, 10_000) == pytest.approx(best_guess_error(1.0, 1.0, 200), rel=0.01)
