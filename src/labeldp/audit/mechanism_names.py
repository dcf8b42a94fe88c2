"""Mechanisms by name, calibrated to an epsilon, for audits."""

from typing import Any

import numpy as np

from labeldp.accounting.calibration import smallest_noise
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta, check_epsilon
from labeldp.core.unproven import allow_unproven
from labeldp.privacy.mechanisms import (
    ConfidentGNMax,
    DiscreteLaplace,
    GNMax,
    GroupHistogram,
    ImmutableArgmax,
    LinearQuery,
    LNMax,
    OneHotGaussian,
    OneHotLaplace,
    RandomizedResponse,
    RRMaxInformation,
    RROnBins,
    RRTopK,
    RRWithPrior,
    StableVote,
    UnbiasedBins,
)

MECHANISM_NAMES = (
    "rr",
    "rr-top-k",
    "rr-with-prior",
    "rr-max-information",
    "laplace",
    "gaussian",
    "histogram",
    "linear",
    "rr-on-bins",
    "unbiased-bins",
    "discrete-laplace",
    "lnmax",
    "gnmax",
    "confident-gnmax",
    "stable-vote",
    "immutable",
)
_NEED_DELTA = ("gaussian", "gnmax", "confident-gnmax", "stable-vote")
_NUMERIC = ("rr-on-bins", "unbiased-bins", "discrete-laplace")
_NO_DELTA = ("rr", "rr-top-k", "rr-with-prior", "rr-max-information", "laplace", *_NUMERIC, "lnmax")
_MULTICLASS = ("rr-top-k", "rr-with-prior", "rr-max-information", "rr-on-bins", "unbiased-bins")
# Noise of threshold tests, as a multiple of the noise of votes.
_TEST_NOISE_RATIO = 3.0


def make_mechanism(
    name: str, epsilon: float, delta: float | None = None, classes: int = 2, queries: int = 1
) -> tuple[Any, float]:
    """Return a mechanism that states the given epsilon, for votes over a run of queries; and its delta.

    Args:
        name: One of `MECHANISM_NAMES`.
        epsilon: The epsilon.
        delta: The delta; None for 0, or for 1e-5 where the mechanism needs one.
        classes: The number of classes.
        queries: The number of queries of a run of votes.

    Raises:
        InputError: There is no such mechanism, or a parameter does not fit it.
    """
    check_epsilon(epsilon)
    if name not in MECHANISM_NAMES:
        raise InputError(f"There is no mechanism {name!r} to audit: choose one of {', '.join(MECHANISM_NAMES)}.")
    if delta is None:
        delta = 1e-5 if name in _NEED_DELTA else 0.0
    check_delta(delta, positive=name in _NEED_DELTA)
    if delta and name in _NO_DELTA:
        raise InputError(f"{name} has pure differential privacy: leave delta at 0.")
    if classes < 2 or queries < 1:
        raise InputError("A mechanism needs two or more classes, and votes one or more queries.")
    if classes > 2 and name not in _MULTICLASS:
        raise InputError(f"{name} is audited for two classes, and has the same loss for more: leave classes at 2.")
    if queries > 1 and not name.endswith(("max", "vote", "immutable")):
        raise InputError(f"{name} has no queries: leave queries at 1.")
    return _build(name, float(epsilon), delta, classes, queries), delta


def _build(name: str, epsilon: float, delta: float, n_classes: int, n_queries: int) -> Any:
    # Some classes are likely, some are not. The two likeliest are equally likely. Then the likeliest class alone is
    # never the best set of candidates, and randomized response has two candidates or more at every epsilon.
    weight = 1 / np.maximum(np.arange(n_classes), 1)
    prior = (weight / weight.sum())[None, :]
    builders: dict[str, Any] = {
        "rr": lambda: RandomizedResponse(epsilon),
        "rr-top-k": lambda: RRTopK(epsilon, prior, max(2, n_classes // 2)),
        "rr-with-prior": lambda: RRWithPrior(epsilon, prior),
        "rr-max-information": lambda: RRMaxInformation(epsilon, prior),
        "laplace": lambda: OneHotLaplace(epsilon),
        "gaussian": lambda: OneHotGaussian(epsilon, delta),
        "histogram": lambda: GroupHistogram(np.zeros(1, np.int64), epsilon, delta),
        "linear": lambda: LinearQuery(np.ones((1, 1)), epsilon, delta),
        "rr-on-bins": lambda: RROnBins(epsilon, prior[0]),
        "unbiased-bins": lambda: UnbiasedBins(epsilon, prior[0]),
        "discrete-laplace": lambda: DiscreteLaplace(epsilon),
        "lnmax": lambda: LNMax(2 * n_queries / epsilon, n_queries),
        "gnmax": lambda: _calibrate_votes(lambda sigma: GNMax(sigma, n_queries), epsilon, delta),
        "confident-gnmax": lambda: _calibrate_votes(
            lambda sigma: ConfidentGNMax(8 * sigma, _TEST_NOISE_RATIO * sigma, sigma, n_queries, n_queries),
            epsilon,
            delta,
        ),
        "stable-vote": lambda: StableVote(epsilon, delta, n_queries, min(n_queries, 8)),
        "immutable": lambda: _make_immutable(epsilon, n_queries),
    }
    return builders[name]()


def _calibrate_votes(make_votes: Any, epsilon: float, delta: float) -> Any:
    """Return votes with the least noise that guarantees epsilon over the whole run."""
    return make_votes(smallest_noise(lambda sigma: make_votes(sigma).guarantee(delta).epsilon <= epsilon, 1 / epsilon))


def _make_immutable(epsilon: float, n_queries: int) -> ImmutableArgmax:
    """Return votes for which their authors claim epsilon, without a valid proof. They are allowed for the audit."""
    allow_unproven("immutable")
    return ImmutableArgmax(2 * n_queries / epsilon, n_queries)
