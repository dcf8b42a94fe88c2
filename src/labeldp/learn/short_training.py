"""Shortened trainings, for a rehearsal: all of the code runs, and little of the work is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

SHORT_STEPS = 2  # of each epoch, and epochs, of a shortened training
_SHORT_ROUNDS = 1  # of expectation maximisation
_SHORT_TREES = 5  # or iterations, of a scikit-learn estimator

_IS_SHORTENED: ContextVar[bool] = ContextVar("labeldp_short", default=False)


@contextmanager
def shorten_training() -> Iterator[None]:
    """Shorten every training inside: networks, rounds of expectation maximisation, and estimators of scikit-learn."""
    token = _IS_SHORTENED.set(True)
    try:
        yield
    finally:
        _IS_SHORTENED.reset(token)


def is_shortened() -> bool:
    """Whether trainings are to be short."""
    return _IS_SHORTENED.get()


def em_rounds(default: int) -> int:
    """Return how many rounds of expectation maximisation to run."""
    return min(default, _SHORT_ROUNDS) if is_shortened() else default


def boosting_rounds(default: int) -> int:
    """Return how many rounds of boosting to run."""
    return min(default, _SHORT_TREES) if is_shortened() else default


def limit_iterations(estimator: Any) -> Any:
    """Return an unfitted estimator of scikit-learn, with few trees or iterations if trainings are to be short."""
    if is_shortened():
        params = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
        long = [name for name in ("n_estimators", "max_iter") if isinstance(params.get(name), int)]
        estimator.set_params(**{name: _SHORT_TREES for name in long if params[name] > _SHORT_TREES})
    return estimator
