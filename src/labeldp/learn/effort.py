"""Shortened trainings, for a rehearsal: all of the code runs, and little of the work is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

STEPS = 2  # of each epoch, and epochs, of a shortened training
_ROUNDS = 1  # of expectation maximisation
_TREES = 5  # or iterations, of a scikit-learn estimator

_SHORT: ContextVar[bool] = ContextVar("labeldp_short", default=False)


@contextmanager
def shortened() -> Iterator[None]:
    """Shorten every training inside: networks, rounds of expectation maximisation, and estimators of scikit-learn."""
    token = _SHORT.set(True)
    try:
        yield
    finally:
        _SHORT.reset(token)


def is_shortened() -> bool:
    """Whether trainings are to be short."""
    return _SHORT.get()


def rounds(usual: int) -> int:
    """Return how many rounds of expectation maximisation to run."""
    return min(usual, _ROUNDS) if is_shortened() else usual


def tree_rounds(usual: int) -> int:
    """Return how many rounds of boosting to run."""
    return min(usual, _TREES) if is_shortened() else usual


def brief(estimator: Any) -> Any:
    """Return an unfitted estimator of scikit-learn, with few trees or iterations if trainings are to be short."""
    if is_shortened():
        settings = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
        long = [name for name in ("n_estimators", "max_iter") if isinstance(settings.get(name), int)]
        estimator.set_params(**{name: _TREES for name in long if settings[name] > _TREES})
    return estimator
