"""Real numbers between 0 and 1 to as many binary digits as a comparison asks for.

A float64 probability is already rounded, and a rounded probability is another mechanism. A `Real` is held as
a formula (exponentials of rationals) and evaluated as far as needed, so that a uniform real drawn bit by bit
can be compared with it exactly.
"""

import decimal
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

Formula = Callable[[decimal.Context], Decimal]

# The formulas below take fewer than ten operations on numbers in [0, 1], each rounded to the context's
# precision, so ten digits of slack bound their error with room to spare.
_SLACK_DIGITS = 10


def as_fraction(value: float) -> Fraction:
    """Return the decimal number that was written: 0.1 is one tenth, not the nearest float64."""
    return Fraction(repr(float(value)))


def to_decimal(value: Fraction, context: decimal.Context) -> Decimal:
    """Round a fraction to the precision of `context`."""
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


class Real:
    """A number in [0, 1]: a fraction, or the formula of an irrational one."""

    def __init__(self, value: Fraction | Formula) -> None:
        self._value = value

    def floor(self, n_bits: int) -> tuple[int, bool]:
        """Return floor(x * 2**bits), and whether x * 2**bits is that integer exactly."""
        if isinstance(self._value, Fraction):
            quotient, remainder = divmod(self._value.numerator << n_bits, self._value.denominator)
            return quotient, remainder == 0
        digits = int(n_bits * 0.302) + 2 * _SLACK_DIGITS
        while True:
            context = decimal.Context(prec=digits, Emin=-(10**9), Emax=10**9)
            value = Fraction(self._value(context))
            error = Fraction(1, 10 ** (digits - _SLACK_DIGITS))
            low = max(0, ((value - error) * 2**n_bits).__floor__())
            high = min(2**n_bits - 1, ((value + error) * 2**n_bits).__floor__())
            if low == high:  # reached in the end, because an irrational number is never a multiple of 2^-bits
                return low, False
            digits *= 2


def exp_minus(x: Fraction) -> Real:
    """exp(-x) for a rational x >= 0."""
    if x == 0:
        return Real(Fraction(1))
    return Real(lambda c: c.exp(c.minus(to_decimal(x, c))))


def one_minus_exp_minus(x: Fraction, divisor_exponent: Fraction | None = None) -> Real:
    """1 - exp(-x), divided by 1 - exp(-whole) where `whole` is given; rationals 0 < x <= whole."""
    if x == divisor_exponent:
        return Real(Fraction(1))

    def formula(c: decimal.Context) -> Decimal:
        # 1 - exp(-x) loses leading digits for a small x: carry as many more.
        extra_digits = max(0, x.denominator.bit_length() - x.numerator.bit_length()) // 3 + 5
        wide_context = decimal.Context(prec=c.prec + 2 * extra_digits, Emin=c.Emin, Emax=c.Emax)
        numerator = wide_context.subtract(Decimal(1), wide_context.exp(wide_context.minus(to_decimal(x, wide_context))))
        if divisor_exponent is None:
            return numerator
        return wide_context.divide(
            numerator,
            wide_context.subtract(
                Decimal(1), wide_context.exp(wide_context.minus(to_decimal(divisor_exponent, wide_context)))
            ),
        )

    return Real(formula)


def shifted_odds(x: Fraction, add: int, total: int) -> Real:
    """(exp(x) + add) / (exp(x) + total) for integers 0 <= add <= total and a rational x > 0."""
    if add == total:
        return Real(Fraction(1))

    def formula(c: decimal.Context) -> Decimal:
        inverse = c.exp(c.minus(to_decimal(x, c)))
        return c.divide(c.fma(Decimal(add), inverse, Decimal(1)), c.fma(Decimal(total), inverse, Decimal(1)))

    return Real(formula)
