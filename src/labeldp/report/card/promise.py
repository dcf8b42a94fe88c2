"""The sections of a card about the guarantee: what it protects, its strength, and the gains of an attacker."""

import math
from typing import Any

from labeldp.core.guarantee import Guarantee, max_guess_accuracy
from labeldp.report.card.audit import proven_epsilon
from labeldp.report.card.blocks import Block, TableBlock, Tiles
from labeldp.report.card.epsilon_figures import draw_epsilon_scale, draw_noisy_label
from labeldp.report.card.formatting import (
    band,
    best_guess_error,
    format_lower,
    format_odds,
    format_upper,
    guess_gains,
    percent,
)
from labeldp.report.card.score import measured_intervals, uses_clean_labels

_PROTECTED = {
    "label": ("The label of each row", "one label"),
    "user": ("All labels of each user", "one user's labels"),
    "record": ("Each row as a whole", "one row"),
}
_NEIGHBORS = {
    "label": "the label of one row is replaced by any other label",
    "user": "all labels of one user are replaced by any others",
    "record": "one row, label and features, is replaced by any other",
}
_TRUSTED = {"local": "nobody but their owners", "central": "the curator who holds them"}


def summary_blocks(stated: Guarantee, facts: dict[str, Any]) -> list[Block]:
    """Return the most important figures."""
    lower = proven_epsilon(facts.get("audits"))
    is_finite, guess = math.isfinite(stated.epsilon), max_guess_accuracy(stated.epsilon, delta=stated.delta)
    epsilon = f"≤ {format_upper(stated.epsilon)}" if is_finite else "infinite"
    protection = f"{band(stated.epsilon)} protection" if is_finite else "no protection"
    audited = ("none yet", "epsilon relies on proofs alone")
    if lower is not None:
        audited = (f"≥ {format_lower(lower)}", "epsilon, proven by an attack")
        audited = audited if lower > 0 else ("≥ 0", "the attack found nothing")
    return [
        Tiles(
            (
                ("Stated epsilon", epsilon, f"delta {stated.delta:g}, {protection}"),
                ("Best guess", percent(guess), "correct at most, from even odds"),
                _utility_tile(facts.get("score"), (facts.get("space") or {}).get("step") is not None),
                ("Audit", *audited),
            )
        )
    ]


def _utility_tile(score: dict[str, Any] | None, is_numeric: bool) -> tuple[str, str, str]:
    """Return the first figure of a score: accuracy for classes, error for numeric labels."""
    if not score or not (measured := measured_intervals(score)):
        return "Error" if is_numeric else "Accuracy", "not measured", "there were no held-out rows"
    title, value, interval = measured[0]
    method = "measured on clean labels" if uses_clean_labels(score) else "measured privately"
    if value == "unknown" and not is_numeric:
        return title, value, "too much noise"
    return title, value, f"{interval}, {method}"


def protection_blocks(stated: Guarantee, facts: dict[str, Any]) -> list[Block]:
    """Describe what is protected and what is not."""
    if math.isinf(stated.epsilon):
        return [
            "NOTHING. This training is not differentially private: there is no bound on what it reveals about a label.",
            "Features are not protected, nor is the fact that a row exists.",
        ]
    subject, unit_text = _PROTECTED[stated.unit]
    blocks: list[Block] = [
        f"{subject}: any result of this training would have been nearly as likely if {unit_text} had been different.",
        f"In terms of the proofs: neighboring data sets are those in which {_NEIGHBORS[stated.unit]}.",
    ]
    if stated.unit == "record":
        blocks.append("Features of these rows are protected, too; rows that teachers voted on are public.")
    else:
        blocks.append("Features are not protected, nor is the fact that a row exists.")
    if facts.get("model_unit") == "record" and stated.unit == "label":
        blocks.append("The model alone protects whole rows, features included; its score protects labels alone.")
    if facts.get("users"):
        blocks += _user_blocks(facts["users"])
    if stated.unit == "label":
        blocks.append(
            "A person who owns several rows has a weaker protection: the privacy loss adds up over their rows."
        )
    blocks.append(
        "An attacker can infer a label that follows from the features or from other people's labels, with this model "
        "or without it. The guarantee bounds only how much the label of a row itself adds to such an inference."
    )
    return blocks


def _user_blocks(users: dict[str, Any]) -> list[Block]:
    """Describe how many labels of each user were used, and the cost of a single label."""
    max_labels, n_rows, n_dropped = users["labels_per_user"], users["rows"], users["dropped"]
    label_guarantee = Guarantee(**users["label"])
    taken_text = "one label of each user" if max_labels == 1 else f"{max_labels} labels of each user"
    dropped_text = (
        f"{n_dropped:,} of {n_rows + n_dropped:,} rows were dropped at random, independently of labels"
        if n_dropped
        else ""
    )
    cost_text = f"epsilon {format_upper(label_guarantee.epsilon)}" + (
        f" and delta {label_guarantee.delta:g}" if label_guarantee.delta else ""
    )
    return [
        f"At most {taken_text} took part" + (f"; {dropped_text}." if dropped_text else ", and no row was dropped."),
        f"The guarantee of a single label in the training has {cost_text}.",
        "The identity of the users and the number of their rows are not protected.",
    ]


def epsilon_blocks(stated: Guarantee, model: Guarantee, facts: dict[str, Any]) -> list[Block]:
    """Explain epsilon and delta."""
    lower = proven_epsilon(facts.get("audits"))
    figure = draw_epsilon_scale(stated.epsilon, lower)
    if math.isinf(stated.epsilon):
        return ["Epsilon is infinite: the information that the model reveals about a label is not bounded.", figure]
    epsilon, delta = format_upper(stated.epsilon), f"{stated.delta:g}"
    guess = max_guess_accuracy(stated.epsilon, delta=stated.delta)
    factor = format_upper(math.exp(min(stated.epsilon, 700)))
    blocks: list[Block] = [
        f"Epsilon {epsilon} and delta {delta}, against any attacker.",
        f"An attacker with even prior odds about a label guesses it correctly in at most {percent(guess)} of cases.",
        f"For specialists: every outcome is at most exp({epsilon}), below {factor}, "
        f"times as likely for one data set as for a neighboring one{f', up to {delta}' if stated.delta else ''}.",
        f"Delta {delta}, {format_odds(stated.delta)}: the additional loss beyond epsilon, at worst the "
        "probability that a label is revealed."
        if stated.delta
        else "Delta 0: there is no loss beyond epsilon.",
        f"Who must be trusted with the labels: {_TRUSTED[stated.trust]}.",
    ]
    if model.epsilon < stated.epsilon * (1 - 1e-9):  # not a rounding difference
        blocks.append(
            f"The model alone: epsilon {format_upper(model.epsilon)}. It does not depend on the held-out labels, "
            f"whose score costs them epsilon {epsilon} instead."
        )
    gains = guess_gains(stated.epsilon, stated.delta)
    rows = tuple((gain["words"], percent(gain["before"]), percent(gain["at_most"])) for gain in gains)
    header = ("Probability of the true label for an attacker", "Prior", "Posterior, at most")
    caption = "The largest gain about one label for an attacker who knows all others"
    caveat = ", from outcomes with a probability far above delta" if stated.delta else ""
    return [*blocks, figure, TableBlock(f"{caption}{caveat}", header, rows)]


def number_blocks(stated: Guarantee, values: list[Any]) -> list[Block]:
    """Return the smallest error of a guess of a single number at this epsilon."""
    low, high = values[0], values[-1]
    if math.isinf(stated.epsilon):
        return ["Without a bound, every number may be released unchanged."]
    error, prior_error = best_guess_error(stated.epsilon, high - low, len(values))
    return [
        f"Labels are numbers from {low:g} to {high:g}. With a uniform prior and without a release, the best "
        f"guess has a root mean squared error of {prior_error:.3g}.",
        f"With the most informative release of one number at this epsilon, the error is {error:.3g}: no release with "
        "this epsilon allows a smaller one" + (f" (up to delta {stated.delta:g})." if stated.delta else "."),
    ]


def noisy_label_blocks(stated: Guarantee, classes: list[Any], mechanisms: set[str]) -> list[Block]:
    """Show the randomized response of a single label at this epsilon."""
    if math.isinf(stated.epsilon):
        return [draw_noisy_label(stated.epsilon, classes), "Without a bound, every label may be released unchanged."]
    comment = "This training released labels in this way."
    if mechanisms != {"RandomizedResponse"} or stated.unit != "label":
        comment = (
            "This training did not release single labels in this way. Its releases reveal no more about one label."
        )
    return [
        draw_noisy_label(stated.epsilon, classes),
        "The figure shows randomized response at this epsilon: a random choice keeps a label or replaces it by "
        "another. No release with this epsilon identifies a label with a higher probability under a uniform prior"
        + (f" (up to delta {stated.delta:g})." if stated.delta else "."),
        comment,
    ]
