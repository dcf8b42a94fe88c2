"""The promise in words: what is protected, how much, and what a guesser can gain."""

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
    """Give the figures that a reader wants first."""
    lower = proven_epsilon(facts.get("audits"))
    is_finite, guess = math.isfinite(stated.epsilon), max_guess_accuracy(stated.epsilon, delta=stated.delta)
    epsilon = f"≤ {format_upper(stated.epsilon)}" if is_finite else "infinite"
    protection = f"{band(stated.epsilon)} protection" if is_finite else "no protection"
    audited = ("none yet", "the proofs stand alone")
    if lower is not None:
        audited = (f"≥ {format_lower(lower)}", "epsilon, proven by an attack")
        audited = audited if lower > 0 else ("≥ 0", "the attack found nothing")
    return [
        Tiles(
            (
                ("Stated epsilon", epsilon, f"delta {stated.delta:g}, {protection}"),
                ("Best guess", percent(guess), "right at most, from even odds"),
                _utility_tile(facts.get("score"), (facts.get("space") or {}).get("step") is not None),
                ("Audit", *audited),
            )
        )
    ]


def _utility_tile(score: dict[str, Any] | None, is_numeric: bool) -> tuple[str, str, str]:
    """Return the first figure of a score: the accuracy of classes, the error of numbers."""
    if not score or not (measured := measured_intervals(score)):
        return "Error" if is_numeric else "Accuracy", "not measured", "no rows were set aside"
    title, value, interval = measured[0]
    method = "measured on clean labels" if uses_clean_labels(score) else "measured privately"
    if value == "unknown" and not is_numeric:
        return title, value, "too much noise to tell"
    return title, value, f"{interval}, {method}"


def protection_blocks(stated: Guarantee, facts: dict[str, Any]) -> list[Block]:
    """Say what is protected and what is not."""
    if math.isinf(stated.epsilon):
        return [
            "NOTHING. This training is not differentially private: what it tells about a label is not bounded.",
            "Features are not protected, nor is the fact that a row exists.",
        ]
    subject, unit_text = _PROTECTED[stated.unit]
    blocks: list[Block] = [
        f"{subject}: any result of this training would have been nearly as likely if {unit_text} had been different.",
        f"In terms of the proofs: neighbouring data sets are those in which {_NEIGHBORS[stated.unit]}.",
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
        blocks.append("A person who owns several rows is protected less: what is lost adds up over their rows.")
    blocks.append(
        "A label that follows from the features, or from other people's labels, can be guessed by whoever knows the "
        "pattern, from this model or without it. What is bounded is how much one's own label adds to such a guess."
    )
    return blocks


def _user_blocks(users: dict[str, Any]) -> list[Block]:
    """Say how many labels of a user took part, and what a single one loses."""
    max_labels, n_rows, n_dropped = users["labels_per_user"], users["rows"], users["dropped"]
    label_guarantee = Guarantee(**users["label"])
    taken_text = "one label of each user" if max_labels == 1 else f"{max_labels} labels of each user"
    dropped_text = (
        f"{n_dropped:,} of {n_rows + n_dropped:,} rows were dropped at random, without a look at labels"
        if n_dropped
        else ""
    )
    cost_text = f"epsilon {format_upper(label_guarantee.epsilon)}" + (
        f" and delta {label_guarantee.delta:g}" if label_guarantee.delta else ""
    )
    return [
        f"At most {taken_text} took part" + (f"; {dropped_text}." if dropped_text else ", and no row was dropped."),
        f"A single label that the model learnt from loses {cost_text}.",
        "Who the users are, and how many rows each of them owns, is not protected.",
    ]


def epsilon_blocks(stated: Guarantee, model: Guarantee, facts: dict[str, Any]) -> list[Block]:
    """Say what epsilon and delta mean."""
    lower = proven_epsilon(facts.get("audits"))
    figure = draw_epsilon_scale(stated.epsilon, lower)
    if math.isinf(stated.epsilon):
        return ["Epsilon is infinite: what the model tells about a label is not bounded.", figure]
    epsilon, delta = format_upper(stated.epsilon), f"{stated.delta:g}"
    guess = max_guess_accuracy(stated.epsilon, delta=stated.delta)
    factor = format_upper(math.exp(min(stated.epsilon, 700)))
    blocks: list[Block] = [
        f"Epsilon {epsilon} and delta {delta}, against the strongest guesser.",
        f"Whoever gave a label even odds before is right about it in {percent(guess)} of cases at most.",
        f"For specialists: every outcome is at most exp({epsilon}), below {factor}, "
        f"times as likely for one data set as for a neighbour{f', up to {delta}' if stated.delta else ''}.",
        f"Delta {delta}, {format_odds(stated.delta)}: what may be lost beyond epsilon, at worst the chance that a label "
        "is told outright."
        if stated.delta
        else "Delta 0: nothing is lost beyond epsilon.",
        f"Who must be trusted with the labels: {_TRUSTED[stated.trust]}.",
    ]
    if model.epsilon < stated.epsilon * (1 - 1e-9):  # not by a last digit alone
        blocks.append(
            f"The model alone: epsilon {format_upper(model.epsilon)}. Labels that were set aside to measure it took no part "
            f"in it; they lose epsilon {epsilon} to its score instead."
        )
    gains_reached = guess_gains(stated.epsilon, stated.delta)
    rows = tuple((each["words"], percent(each["before"]), percent(each["at_most"])) for each in gains_reached)
    header = ("Chance that a guesser gave a label", "Before", "After, at most")
    caption = "What anybody could gain about one label, knowing all others"
    caveat = ", from anything whose chance is far above delta" if stated.delta else ""
    return [*blocks, figure, TableBlock(f"{caption}{caveat}", header, rows)]


def number_blocks(stated: Guarantee, values: list[Any]) -> list[Block]:
    """Say how near a guess of a single number can come at this epsilon."""
    low, high = values[0], values[-1]
    if math.isinf(stated.epsilon):
        return ["Without a bound, every number may be told as it is."]
    error, prior_error = best_guess_error(stated.epsilon, high - low, len(values))
    return [
        f"Labels are numbers from {low:g} to {high:g}. Whoever takes all of them for equally likely and guesses "
        f"without a release is off by {prior_error:.3g} (root mean square).",
        f"With the most telling release of one number at this epsilon, the guess is off by {error:.3g}: no release with "
        "this epsilon brings it nearer" + (f" (but for delta {stated.delta:g})." if stated.delta else "."),
    ]


def noisy_label_blocks(stated: Guarantee, classes: list[Any], mechanisms: set[str]) -> list[Block]:
    """Show what a single noisy label looks like at this epsilon."""
    if math.isinf(stated.epsilon):
        return [draw_noisy_label(stated.epsilon, classes), "Without a bound, every label may be told as it is."]
    comment = "This training told labels in this way."
    if mechanisms != {"RandomizedResponse"} or stated.unit != "label":
        comment = "This training did not tell labels one by one in this way; what it told says no more about one label."
    return [
        draw_noisy_label(stated.epsilon, classes),
        "The picture is of randomized response at this epsilon: a label is kept by chance, or replaced by another. No "
        "release with this epsilon is right more often about a label, if all classes were equally likely before"
        + (f" (but for delta {stated.delta:g})." if stated.delta else "."),
        comment,
    ]
