from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scripted import Uniform, Words, exact_law

from labeldp.privacy.noise import samplers

ULP = 2.0**-63
LAST = 2**64 - 1


def test_bernoulli_has_the_requested_probability():
    for p in (Fraction(1, 3), Fraction(1, 2), Fraction(1, 10**6), 1 - Fraction(1, 10**30)):
        law = exact_law(lambda bits, p=p: bool(samplers.bernoulli(p, 1, bits)[0]))
        assert abs(law[True] - p) < ULP


def test_bernoulli_draws_more_bits_where_64_do_not_decide():
    third = (2**64 - 1) // 3  # 0101...: the first 64 bits of 1/3
    assert samplers.bernoulli(Fraction(1, 3), 1, Uniform(third, third - 1))[0]
    assert not samplers.bernoulli(Fraction(1, 3), 1, Uniform(third, third + 1))[0]
    assert samplers.bernoulli(Fraction(1, 3), 1, Uniform(third, third, third, third - 1))[0]
    tiny = Fraction(1, 2**70)  # below what 64 bits can express
    assert samplers.bernoulli(tiny, 1, Uniform(0, 2**58 - 1))[0]
    assert not samplers.bernoulli(tiny, 1, Uniform(0, 2**58))[0]


def test_bernoulli_of_probability_zero_and_one_is_constant():
    assert samplers.bernoulli(Fraction(1), 5).all()
    assert not samplers.bernoulli(Fraction(0), 5).any()


@pytest.mark.parametrize("cells", [2, 3, 7, 10, 300])
def test_uniform_gives_every_cell_the_same_probability(cells):
    law = exact_law(lambda bits: int(samplers.uniform(cells, 1, bits)[0]))
    assert sorted(law) == list(range(cells))
    assert all(abs(mass - Fraction(1, cells)) < ULP for mass in law.values())


@given(st.lists(st.fractions(min_value="1/1000", max_value=5, max_denominator=1000), min_size=2, max_size=6))
@settings(max_examples=20)
def test_categorical_follows_its_weights(weights):
    law = exact_law(lambda bits: int(samplers.categorical(weights, 1, bits)[0]))
    assert all(abs(law[i] - w / sum(weights)) < ULP for i, w in enumerate(weights))


def test_many_rows_agree_with_one_by_one():
    law = samplers.response_offset(Fraction(1, 2), 7)
    assert np.abs(np.bincount(law.sample(10**6), minlength=7) / 10**6 - _odds(0.5, 7)).max() < 0.003


def _odds(epsilon, classes):
    weights = np.array([np.exp(epsilon)] + [1.0] * (classes - 1))
    return weights / weights.sum()


# Integer noise: the law of the sampler's own tables, and of outcomes that no sample would ever show.


def geometric_law(rate: Fraction) -> list[Fraction]:
    """The law of one geometric table: 0..m-1, and last "at least m, go on"."""
    table = samplers._geometric_start(rate)
    law = exact_law(lambda bits: int(table.sample(1, bits)[0]))
    return [law.get(g, Fraction(0)) for g in range(table.n_cells)]


@pytest.mark.parametrize("rate", [Fraction(1, 20), Fraction(1, 2), Fraction(5)])
def test_geometric_table_is_exact(rate):
    with mpmath.workdps(50):
        q = mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator)
        law = geometric_law(rate)
        for g, mass in enumerate(law):
            true = q**g if g == len(law) - 1 else (1 - q) * q**g
            assert abs(mpmath.mpf(mass.numerator) / mass.denominator - true) < ULP


def test_geometric_digit_is_exact():
    rate = Fraction(1, 10**5)
    table = samplers._geometric_digit(rate)
    law = exact_law(lambda bits: int(table.sample(1, bits)[0]))
    with mpmath.workdps(50):
        q = mpmath.exp(-mpmath.mpf(1) / 10**5)
        for g in range(512):
            true = (1 - q) * q**g / (1 - q**512)
            assert abs(mpmath.mpf(law[g].numerator) / law[g].denominator - true) < ULP


def test_the_tail_is_never_cut():
    # "At least 512, go on" forty times, then 7, against a second geometric variable of 0.
    # Its probability at scale 20 is about e^-1024: memorylessness makes it exact, and no sample would show it.
    drawn = samplers.discrete_laplace(Fraction(20), 1, Words(*[LAST] * 40, _word_for(Fraction(1, 20), 7), 0))
    assert drawn[0] == 40 * 512 + 7
    drawn = samplers.discrete_laplace(Fraction(20), 1, Words(0, *[LAST] * 40, 0))
    assert drawn[0] == -40 * 512


def _word_for(rate, g):
    """A uniform in the middle of the cell of g."""
    law = geometric_law(rate)
    return int((sum(law[:g]) + law[g] / 2) * 2**64)


def test_a_wide_law_is_put_together_from_digits():
    rate = Fraction(1, 10**5)  # digits of 512 at two levels, then a table
    digit = samplers._geometric_digit(rate)
    word = next(w for w in range(2**62, 2**64, 2**55) if digit.sample(1, Uniform(w))[0] == 300)
    top = _word_for(rate * 512 * 512, 3)
    drawn = samplers.discrete_laplace(Fraction(10**5), 1, Words(word, 0, top, 0, 0, 0))
    assert drawn[0] == 300 + 512 * 512 * 3


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(20), Fraction(10**5)])
def test_laplace_moments(scale):
    x = samplers.discrete_laplace(scale, 400_000)
    q = np.exp(-1 / float(scale))
    variance = 2 * q / (1 - q) ** 2
    assert abs(x.mean()) < 6 * np.sqrt(variance / x.size)
    assert abs(x.var() / variance - 1) < 6 * np.sqrt(5 / x.size)


@pytest.mark.parametrize("sigma", [Fraction(1, 3), Fraction(1), Fraction(17, 3), Fraction(1000)])
def test_gaussian_matches_its_law(sigma):
    x = samplers.discrete_gaussian(sigma, 400_000)
    grid = np.arange(-int(8 * sigma) - 4, int(8 * sigma) + 5)
    mass = np.exp(-(grid**2) / (2 * float(sigma) ** 2))
    bins = max(1, int(sigma) // 5)
    expected = np.bincount((grid - grid[0]) // bins, mass / mass.sum()) * x.size
    observed = np.bincount((x - grid[0]) // bins, minlength=expected.size)
    assert _chi_square(observed, expected) > 1e-7


@given(st.integers(0, 40), st.fractions(min_value=2, max_value=9, max_denominator=50))
@settings(max_examples=40)
def test_acceptance_is_exact_at_the_edge(distance, sigma):
    center, width = sigma**2 / (sigma.__floor__() + 1), 2 * sigma**2
    with mpmath.workdps(80):
        x = (distance - center) ** 2 / width
        true = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
        first = int(mpmath.floor(true * 2**64))
        second = int(mpmath.floor((true * 2**64 - first) * 2**64))

    def accepted(*words):
        return bool(samplers._draw_acceptance(np.array([distance]), center, width, Uniform(*words))[0])

    if first == 2**64:  # probability 1
        assert accepted(LAST)
        return
    assert accepted(first - 1) if first else True
    assert not accepted(first + 1) if first < LAST else True
    assert accepted(first, second - 1) if second else True
    assert not accepted(first, second + 1)


@pytest.mark.parametrize("count", [0, 1, 2**15 - 1, 2**15, 2**15 + 1])
def test_any_number_of_draws(count):
    assert samplers.discrete_gaussian(Fraction(3), count).shape == (count,)
    assert samplers.discrete_laplace(Fraction(3), count).shape == (count,)


def test_noise_that_int64_cannot_hold_is_refused():
    for sampler in (samplers.discrete_laplace, samplers.discrete_gaussian):
        with pytest.raises(ValueError, match="narrower"):
            sampler(Fraction(2**50), 1)


# OpenDP's samplers are the oracle: two samples, one law.


def _chi_square(observed, expected):
    keep = expected >= 10
    o = np.append(observed[keep], observed[~keep].sum())
    e = np.append(expected[keep], expected[~keep].sum())
    if e[-1] == 0:
        o, e = o[:-1], e[:-1]
    return stats.chi2.sf(((o - e) ** 2 / e).sum(), e.size - 1)


def _same_law(x, y):
    low = min(x.min(), y.min())
    table = np.stack([np.bincount(v - low, minlength=max(x.max(), y.max()) - low + 1) for v in (x, y)])
    rare = table.sum(axis=0) < 20
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    return stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue


@pytest.fixture(scope="module")
def opendp_vector():
    dp.enable_features("contrib")
    return dp.vector_domain(dp.atom_domain(T=int))


@pytest.mark.parametrize(("scale", "draws"), [(2.0, 300_000), pytest.param(20.0, 10**6, marks=pytest.mark.long)])
def test_laplace_agrees_with_opendp(opendp_vector, scale, draws):
    oracle = np.array(dp.m.make_laplace(opendp_vector, dp.l1_distance(T=int), scale)([0] * draws))
    assert _same_law(samplers.discrete_laplace(Fraction(scale), draws), oracle) > 1e-7


@pytest.mark.parametrize(("sigma", "draws"), [(2.5, 300_000), pytest.param(40.0, 10**6, marks=pytest.mark.long)])
def test_gaussian_agrees_with_opendp(opendp_vector, sigma, draws):
    oracle = np.array(dp.m.make_gaussian(opendp_vector, dp.l2_distance(T=int), sigma)([0] * draws))
    assert _same_law(samplers.discrete_gaussian(Fraction(sigma), draws), oracle) > 1e-7


@pytest.mark.parametrize("decay", [0.02, 0.5, 3.0])
def test_the_deviation_of_laplace_noise_is_that_of_its_law(decay):
    x = np.arange(-5000, 5001)
    mass = np.exp(-decay * np.abs(x))
    assert samplers.laplace_deviation(decay) == pytest.approx(np.sqrt(mass @ x**2 / mass.sum()))
    assert 0 <= samplers.laplace_deviation(1e9) < 1e-300


def test_exact_arithmetic_decides_wherever_float64_could_be_wrong(monkeypatch):
    """The probability is exp(-1/2); the uniform differs from it by 2^-31 of it, then by 2^-29 of it."""
    ties = []
    monkeypatch.setattr(samplers, "_resolve_tie", lambda *arguments: ties.append(arguments) or 0)
    for relative_difference, n_ties in ((2.0**-31, 1), (-(2.0**-31), 1), (2.0**-29, 0), (-(2.0**-29), 0)):
        ties.clear()
        word = int(np.exp(-0.5) * (1 + relative_difference) * 2.0**64)
        samplers._draw_acceptance(np.array([1]), Fraction(0), Fraction(2), Uniform(word))
        assert len(ties) == n_ties
