"""The privacy card: what a model promises, what it cost and how good it is, for whoever receives it."""

import html
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldp.errors import InputError
from labeldp.guarantees import Guarantee

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Privacy card</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin-top: 1.5rem; }}
li {{ margin: .25rem 0; }}
</style>
{body}
</html>
"""


@dataclass(frozen=True)
class Card:
    """Sections of plain sentences. `facts` holds the same as data."""

    sections: dict[str, list[str]]
    facts: dict[str, Any]

    def to_json(self) -> str:
        """Return the facts as JSON."""
        return json.dumps(self.facts, indent=2) + "\n"

    def to_markdown(self) -> str:
        """Return the card as Markdown."""
        lines = ["# Privacy card"]
        for title, sentences in self.sections.items():
            lines += ["", f"## {title}", "", *(f"- {sentence}" for sentence in sentences)]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Return the card as one page that asks nothing of the network."""
        parts = ["<h1>Privacy card</h1>"]
        for title, sentences in self.sections.items():
            items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
            parts.append(f"<h2>{html.escape(title)}</h2><ul>{items}</ul>")
        return _PAGE.format(body="\n".join(parts))

    def save(self, path: str | Path) -> None:
        """Write the card as `.html`, `.md` or `.json`, as its name says."""
        path = Path(path)
        writers = {".html": self.to_html, ".md": self.to_markdown, ".json": self.to_json}
        if path.suffix not in writers:
            raise InputError(f"{path} must end in .html, .md or .json.")
        path.write_text(writers[path.suffix](), encoding="utf-8")


def make_card(facts: dict[str, Any]) -> Card:
    """Write the card of a training from what its report says."""
    guarantee = Guarantee(**facts["guarantee"])
    sections = {
        **(_protection(guarantee, facts) if math.isfinite(guarantee.epsilon) else _NO_PROTECTION),
        "How": [f"Recipe {facts['recipe']}: {facts['summary']}.", *_releases(facts["releases"])],
        "How good": _scores(facts.get("score")),
        "Warnings": facts.get("warnings") or ["None."],
    }
    return Card(sections, facts)


def _protection(guarantee: Guarantee, facts: dict[str, Any]) -> dict[str, list[str]]:
    what, one = _PROTECTED[guarantee.unit]
    return {
        "What is protected": [
            f"{what}: any result of this training would have been nearly as likely if {one} had been different.",
            "Features are not protected, nor is the fact that a row exists.",
        ],
        "How much": [
            f"Epsilon {guarantee.epsilon:g} and delta {guarantee.delta:g}, against the strongest guesser.",
            f"Whoever gave a label even odds before can reach {best_guess(guarantee.epsilon):.0%} confidence at most"
            + (f", except with probability {guarantee.delta:g}." if guarantee.delta else "."),
            f"Who must be trusted with the labels: {_TRUST[guarantee.trust]}.",
            *_total(facts.get("spent"), guarantee),
        ],
    }


_NO_PROTECTION = {
    "What is protected": ["NOTHING. This training is not differentially private: it was done to study a claim."],
    "How much": ["Epsilon is infinite: what the model tells about a label is not bounded."],
}


def best_guess(epsilon: float) -> float:
    """Return the confidence that a guesser with even odds can reach."""
    return 1 / (1 + math.exp(-epsilon))


_PROTECTED = {
    "label": ("The label of each row", "one label"),
    "user": ("All labels of each user", "one user's labels"),
    "record": ("Each row as a whole", "one row"),
}
_TRUST = {"local": "nobody but their owners", "central": "the curator who holds them"}


def _total(spent: dict[str, Any] | None, guarantee: Guarantee) -> list[str]:
    if spent is None or (float(spent["epsilon"]), spent["delta"]) == (guarantee.epsilon, guarantee.delta):
        return []
    return [
        f"These labels were used for more than this training: epsilon {float(spent['epsilon']):g} and delta "
        f"{spent['delta']:g} in all, by the ledger of the data set."
    ]


def _releases(releases: list[dict[str, Any]]) -> list[str]:
    return [f"{each['mechanism']} on {each['rows']:,} labels, epsilon {float(each['epsilon']):g}." for each in releases]


def _scores(score: dict[str, Any] | None) -> list[str]:
    if score is None:
        return ["Not measured: no rows were set aside."]
    value, low, high = score["accuracy"]
    if value is None:
        return [f"Accuracy cannot be told from {score['rows']:,} rows at this epsilon.", f"Method: {score['method']}."]
    return [f"Accuracy {value:.1%}, 95 % interval {low:.1%} to {high:.1%}.", f"Method: {score['method']}."]
