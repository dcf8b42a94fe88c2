import json
import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from labeldp.evaluate import Interval
from labeldp.evaluate.intervals import LEVEL, ExactTest, acceptance_interval, proportion_interval, quantile

FULL = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98]
BOTH_ENDS = {(100, 0.1, 0.5)}  # noise as wide as the range: both clipped ends have a chance of 4 % under p
ONE_END = 0.98  # where one clipped end has a chance of 2.5 to 5 %, it is never rejected, nor as much on the other side


def law_of_noise(scale, reach):
    x = np.arange(-reach, reach + 1)
    law = np.exp(-np.abs(x) / scale)
    return law / law.sum()


def exact_coverage(size, p, scale):
    """P(the test does not reject p), over the sample and the noise, from the law itself."""
    reach = math.ceil(40 * scale)
    law = np.convolve(binom.pmf(np.arange(size + 1), size, p), law_of_noise(scale, reach))
    clipped = law[reach : reach + size + 1].copy()
    clipped[0] += law[:reach].sum()
    clipped[-1] += law[reach + size + 1 :].sum()
    test, middle = ExactTest(size, scale), int(np.searchsorted(np.cumsum(clipped), 0.5))

    def edge(inside, outside):
        """The last accepted count on the way out: p-values fall on both sides of the median."""
        if test.p_value(outside, p) >= LEVEL:
            return outside
        while abs(inside - outside) > 1:
            half = (inside + outside) // 2
            inside, outside = (half, outside) if test.p_value(half, p) >= LEVEL else (inside, half)
        return inside

    return clipped[edge(middle, 0) : edge(middle, size) + 1].sum()


def coverage_of(size, epsilon, p):
    covered = exact_coverage(size, p, 2 / epsilon)  # half of epsilon pays for the count
    assert covered >= 0.93
    assert (covered > 0.99) if (size, epsilon, p) in BOTH_ENDS else (covered <= ONE_END)
    return covered


@pytest.mark.parametrize("epsilon", [0.1, 1, 4])
def test_accuracy_is_covered_at_95_percent(epsilon):
    covered = [coverage_of(size, epsilon, p) for size in (100, 1000, 10_000) for p in (0.5, 0.8, 0.98)]
    assert np.mean(np.array(covered) <= 0.97) >= 8 / 9


@pytest.mark.long
def test_accuracy_is_covered_everywhere():
    grid = product([100, 150, 200, 300, 500, 1000, 3000, 10_000], [0.1, 0.25, 0.5, 1, 2, 4], FULL)
    covered = [coverage_of(*each) for each in grid]
    assert np.mean(np.array(covered) <= 0.97) >= 0.97


@pytest.mark.parametrize(("size", "epsilon", "p"), [(100, 1.0, 0.9), (150, 4.0, 0.98), (120, 0.25, 0.6)])
def test_intervals_cover_in_repetitions(size, epsilon, p):
    """The interval itself, and not only the test that it inverts, over 2,000 samples and noises."""
    rng, scale, interval = np.random.default_rng(0), 2 / epsilon, cache(proportion_interval)
    stop = 1 - math.exp(-1 / scale)
    seen = rng.binomial(size, p, 2000) + rng.geometric(stop, 2000) - rng.geometric(stop, 2000)
    seen = np.clip(seen, 0, size).tolist()
    covered = np.mean([(i := interval(x, size, scale)).low <= p <= i.high for x in seen])
    assert 0.93 <= covered <= 0.975


def test_without_noise_it_is_the_share():
    interval = proportion_interval(80, 100, 0.0)
    assert interval.value == 0.8
    assert (interval.low, interval.high) == pytest.approx((0.715, 0.869), abs=0.004)


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(-400, 700), st.floats(0.1, 500))
def test_ends_hold_the_value_and_grow_with_the_count(size, seen, scale):
    one, more = proportion_interval(seen, size, scale), proportion_interval(seen + 1, size, scale)
    assert 0 <= one.low <= one.high <= 1
    assert one.value is None or one.low <= one.value <= one.high
    assert more.low >= one.low - 1e-5
    assert more.high >= one.high - 1e-5


def test_counts_beyond_the_range_say_the_same_as_its_end():
    assert proportion_interval(150, 100, 5.0) == proportion_interval(100, 100, 5.0)
    assert proportion_interval(-3, 100, 5.0) == proportion_interval(0, 100, 5.0)
    assert proportion_interval(100, 100, 5.0).high == 1.0


def test_noise_alone_says_nothing():
    assert proportion_interval(50, 100, 1e6) == Interval(None, 0.0, 1.0)


def test_many_rows_are_no_burden():
    interval = proportion_interval(9_000_000, 10_000_000, 1e3)
    assert (interval.low, interval.high) == pytest.approx((0.8996, 0.9004), abs=2e-4)


@pytest.mark.parametrize("normal", [0.0, 1.0, 3.0])
def test_the_quantile_knows_long_tails(normal):
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(400_000, 1)).sum(axis=1) + normal * rng.normal(size=400_000)
    variance = 2 + normal**2
    inside = np.mean(np.abs(x) <= quantile(variance, 12.0) * math.sqrt(variance))
    assert inside == pytest.approx(0.95, abs=0.005)


def test_fieller_sets():
    theta = np.linspace(0, 1, 101)
    assert acceptance_interval(theta, 40 - 100 * theta, np.full(101, 10.0)) == pytest.approx((0.3, 0.5))
    assert acceptance_interval(theta, 1 - 2 * theta, np.full(101, 10.0)) == (0.0, 1.0)
    assert acceptance_interval(theta, 300 - 100 * theta, np.full(101, 10.0)) is None


@pytest.mark.parametrize(
    "interval", [Interval(0.5, 0.4, 0.6), Interval(None, 0.0, 1.0), Interval(None, 0.0, math.inf), Interval(0, 0, 0)]
)
def test_json(interval):
    text = json.dumps(interval.to_json(), allow_nan=False)
    assert Interval.from_json(json.loads(text)) == interval
