import signal
from contextlib import contextmanager
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.core.exact_real import Real, as_fraction, exp_minus, one_minus_exp_minus, shifted_odds

RATIONALS = st.fractions(0, 40, max_denominator=10**9).filter(lambda x: x > 0)
TINY = st.builds(Fraction, st.integers(1, 9), st.integers(1, 250).map(lambda k: 2**k))
POSITIVE = st.one_of(RATIONALS, TINY)
BITS = st.integers(0, 300)


def floor_of(formula, bits):
    with mpmath.workprec(bits + 900):
        return int(mpmath.floor(mpmath.ldexp(formula(), bits)))


def real(x):
    return mpmath.mpf(x.numerator) / x.denominator


@given(POSITIVE, BITS)
def test_exp_minus(x, bits):
    assert exp_minus(x).floor(bits) == (floor_of(lambda: mpmath.exp(-real(x)), bits), False)


@given(POSITIVE, BITS)
def test_one_minus_exp_minus(x, bits):
    assert one_minus_exp_minus(x).floor(bits) == (floor_of(lambda: -mpmath.expm1(-real(x)), bits), False)


@given(POSITIVE, st.fractions(0, 1, max_denominator=512).filter(lambda part: 0 < part < 1), BITS)
def test_one_minus_exp_minus_as_part_of_a_whole(whole, part, bits):
    x = whole * part
    oracle = floor_of(lambda: mpmath.expm1(-real(x)) / mpmath.expm1(-real(whole)), bits)
    assert one_minus_exp_minus(x, whole).floor(bits) == (oracle, False)


@given(POSITIVE, st.integers(1, 10**6), st.data(), BITS)
def test_shifted_odds(x, total, data, bits):
    add = data.draw(st.integers(0, total - 1))
    oracle = floor_of(lambda: (mpmath.exp(real(x)) + add) / (mpmath.exp(real(x)) + total), bits)
    assert shifted_odds(x, add, total).floor(bits) == (oracle, False)


@given(st.fractions(0, 1), BITS)
def test_a_fraction_is_exact_where_its_denominator_divides_the_power_of_two(x, bits):
    floor, exact = Real(x).floor(bits)
    assert Fraction(floor, 2**bits) <= x < Fraction(floor + 1, 2**bits)
    assert exact == (Fraction(floor, 2**bits) == x)


def test_dyadic_rationals_report_exact_from_their_last_bit():
    three_eighths = Real(Fraction(3, 8))
    assert [three_eighths.floor(bits) for bits in (1, 2, 3, 4)] == [(0, False), (1, False), (3, True), (6, True)]
    assert exp_minus(Fraction(0)).floor(64) == (2**64, True)


NUMBERS = st.one_of(
    st.fractions(0, 1).map(Real),
    POSITIVE.map(exp_minus),
    POSITIVE.map(one_minus_exp_minus),
    POSITIVE.map(lambda x: one_minus_exp_minus(x, 3 * x)),
    POSITIVE.map(lambda x: shifted_odds(x, 2, 9)),
)


@settings(max_examples=200)
@given(NUMBERS, BITS)
def test_more_bits_only_refine(number, bits):
    assert number.floor(bits)[0] == number.floor(bits + 64)[0] >> 64


@contextmanager
def within(seconds):
    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm")
@pytest.mark.parametrize("x", [10**4, 10**6, 10**12])
def test_a_number_next_to_zero_or_one_costs_no_more_than_another(x):
    with within(1.0):
        for bits in (64, 128):
            assert exp_minus(Fraction(x)).floor(bits) == (0, False)
            assert one_minus_exp_minus(Fraction(x)).floor(bits) == (2**bits - 1, False)
            assert shifted_odds(Fraction(x), 0, 9).floor(bits) == (2**bits - 1, False)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm")
def test_odds_of_the_whole_are_one():
    with within(1.0):
        assert shifted_odds(Fraction(1), 3, 3).floor(64) == (2**64, True)


@pytest.mark.parametrize("kind", [float, np.float64])
def test_exactly_reads_the_decimal_that_was_written(kind):
    assert as_fraction(kind(0.1)) == Fraction(1, 10)
    assert as_fraction(kind(2.5e-7)) == Fraction(1, 4_000_000)
    assert as_fraction(3) == 3


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_exactly_rounds_back_to_the_same_float(x):
    assert float(as_fraction(x)) == x


def test_a_share_of_the_whole_that_is_all_of_it_is_one():
    assert one_minus_exp_minus(Fraction(3), Fraction(3)).floor(8) == (256, True)
    assert shifted_odds(Fraction(1), 4, 4).floor(8) == (256, True)
    assert exp_minus(Fraction(0)).floor(8) == (256, True)


def test_very_small_numbers_have_all_of_their_digits():
    assert exp_minus(Fraction(300)).floor(900)[0] == floor_of(lambda: mpmath.exp(-300), 900)
