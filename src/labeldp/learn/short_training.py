"""Shortened trainings for a rehearsal, which runs all of the code in little time."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

SHORT_STEPS = 2  # epochs of a shortened training, and steps of each epoch
_SHORT_ROUNDS = 1  # rounds of expectation maximization
_SHORT_TREES = 5  # trees or iterations of an estimator

_IS_SHORTENED: ContextVar[bool] = ContextVar("labeldp_short", default=False)


@contextmanager
def shorten_training() -> Iterator[None]:
    """Shorten every training in this context: networks, expectation maximization, and scikit-learn estimators."""
    token = _IS_SHORTENED.set(True)
    try:
        yield
    finally:
        _IS_SHORTENED.reset(token)


def is_shortened() -> bool:
    """Return whether trainings in the current context are shortened."""
    return _IS_SHORTENED.get()


def em_rounds(default: int) -> int:
    """Return the number of rounds of expectation maximization: `default`, or few if trainings are shortened."""
    return min(default, _SHORT_ROUNDS) if is_shortened() else default


def boosting_rounds(default: int) -> int:
    """Return the number of rounds of boosting: `default`, or few if trainings are shortened."""
    return min(default, _SHORT_TREES) if is_shortened() else default


def limit_iterations(estimator: Any) -> Any:
    """Return an unfitted scikit-learn estimator, with few trees or iterations if trainings are shortened."""
    if is_shortened():
        params = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
        long = [name for name in ("n_estimators", "max_iter") if isinstance(params.get(name), int)]
        estimator.set_params(**{name: _SHORT_TREES for name in long if params[name] > _SHORT_TREES})
    return estimator
