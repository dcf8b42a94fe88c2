"""Numbers of a card: bounds on the gains of an attacker, and the format of numbers."""

import math
from typing import Any

from labeldp.core.guarantee import max_guess_accuracy

# Names of epsilons up to each bound, by convention.
BANDS = ((0.1, "very strong"), (1.0, "strong"), (3.0, "moderate"), (8.0, "weak"), (math.inf, "hardly any"))
_PRIORS = ((0.5, "even odds"), (0.1, "one in ten"), (0.01, "one in a hundred"))


def band(epsilon: float) -> str:
    """Return the conventional name of the protection of an epsilon."""
    return "none" if math.isinf(epsilon) else next(name for bound, name in BANDS if epsilon <= bound)


def guess_gains(epsilon: float, delta: float = 0.0) -> list[dict[str, Any]]:
    """Return the best possible accuracies of attackers with several prior probabilities of the true label."""
    return [{"words": text, "before": p, "at_most": max_guess_accuracy(epsilon, p, delta)} for p, text in _PRIORS]


def best_guess_error(epsilon: float, width: float, n_values: int) -> tuple[float, float]:
    """Return the smallest root mean squared errors of a guess of a number, with its release and without.

    The prior is uniform. No release with this epsilon allows a smaller error.

    Args:
        epsilon: The epsilon of the release.
        width: The width of the range.
        n_values: The number of values in the range.
    """
    from labeldp.core.label_space import LabelSpace
    from labeldp.privacy.mechanisms.numeric_responses import RROnBins

    n_shown = min(n_values, 301)  # more values change no digit that is shown
    unit = width / (n_shown - 1)
    prior_error = math.sqrt((n_shown**2 - 1) / 12) * unit
    if math.isinf(epsilon):
        return 0.0, prior_error
    uniform_prior, space = [1 / n_shown] * n_shown, LabelSpace.range(0, n_shown - 1, 1)
    return math.sqrt(RROnBins(min(epsilon, 50.0), uniform_prior).expected_loss(space)) * unit, prior_error


def percent(fraction: float) -> str:
    """Format a fraction as a percentage with two digits, or more near 100 %, so that it is not rounded to 100 %."""
    if fraction <= 0 or fraction >= 1:
        return f"{fraction:.0%}"
    if fraction < 0.1:
        return f"{float(f'{100 * fraction:.2g}'):g}%"
    if 1 - fraction < 1e-6:
        return "nearly 100%"
    return f"{fraction:.{max(0, -math.floor(math.log10(1 - fraction)) - 2)}%}"


def format_odds(probability: float) -> str:
    """Format a small probability as "one in N"."""
    return f"one in {float(f'{1 / probability:.2g}'):,.0f}"


def format_upper(value: float) -> str:
    """Format an upper bound in a few digits, rounded up."""
    if not math.isfinite(value) or value <= 0:
        return "infinite" if value > 0 else "0"
    text = f"{value:.4g}"
    if float(text) < value * (1 - 1e-9):
        text = f"{value + 10.0 ** (math.floor(math.log10(value)) - 3) / 2:.4g}"
    return text


def format_lower(value: float) -> str:
    """Format a lower bound in a few digits, rounded down."""
    if not math.isfinite(value) or value <= 0:
        return "infinite" if value > 0 else "0"
    text = f"{value:.3g}"
    if float(text) > value * (1 + 1e-9):
        text = f"{value - 10.0 ** (math.floor(math.log10(value)) - 2) / 2:.3g}"
    return text


def truncate(name: str, max_length: int) -> str:
    """Shorten a name to `max_length` characters."""
    return name if len(name) <= max_length else name[: max_length - 1].rstrip() + "…"


def parse_number(value: Any) -> float | None:
    """Parse a number of a JSON file, which may be a text such as "inf". Return None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return None if math.isnan(number) else number
