"""Real numbers between 0 and 1, evaluated to as many binary digits as a comparison needs.

A float64 probability is rounded, and a rounded probability gives another mechanism. A `Real` is stored as a formula
(exponentials of rationals) and evaluated as far as needed. So a uniform real that is drawn bit by bit can be compared
with it exactly.
"""

import decimal
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

Formula = Callable[[decimal.Context], Decimal]

# Decimal digits. The formulas below take fewer than ten operations on numbers in [0, 1], each rounded to the precision
# of the context, so ten extra digits bound their error.
_SLACK_DIGITS = 10


def as_fraction(value: float) -> Fraction:
    """Return the shortest decimal that rounds to `value`, as a fraction: 0.1 is one tenth, not the nearest float64."""
    return Fraction(repr(float(value)))


def to_decimal(value: Fraction, context: decimal.Context) -> Decimal:
    """Round a fraction to the precision of `context`."""
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


class Real:
    """A number in [0, 1]: a fraction, or the formula of an irrational one."""

    def __init__(self, value: Fraction | Formula) -> None:
        self._value = value

    def floor(self, n_bits: int) -> tuple[int, bool]:
        """Return floor(x * 2**n_bits), and whether x * 2**n_bits equals that integer."""
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
            if low == high:  # terminates: an irrational number is never a multiple of 2^-n_bits
                return low, False
            digits *= 2


def exp_minus(x: Fraction) -> Real:
    """Return exp(-x) for a rational x >= 0."""
    if x == 0:
        return Real(Fraction(1))
    return Real(lambda c: c.exp(c.minus(to_decimal(x, c))))


def one_minus_exp_minus(x: Fraction, divisor_exponent: Fraction | None = None) -> Real:
    """Return 1 - exp(-x), divided by 1 - exp(-d) if d = `divisor_exponent` is given, for rationals 0 < x <= d."""
    if x == divisor_exponent:
        return Real(Fraction(1))

    def formula(c: decimal.Context) -> Decimal:
        # 1 - exp(-x) loses leading digits for a small x: compute with as many more.
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
    """Return (exp(x) + add) / (exp(x) + total) for integers 0 <= add <= total and a rational x > 0."""
    if add == total:
        return Real(Fraction(1))

    def formula(c: decimal.Context) -> Decimal:
        inverse = c.exp(c.minus(to_decimal(x, c)))
        return c.divide(c.fma(Decimal(add), inverse, Decimal(1)), c.fma(Decimal(total), inverse, Decimal(1)))

    return Real(formula)
