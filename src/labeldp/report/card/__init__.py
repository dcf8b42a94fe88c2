"""The privacy card: the guarantee, the cost and the score of a model, for its recipients.

A card is a list of sections, which are written as HTML, Markdown and JSON.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee, json_number
from labeldp.releases.responses import response_probabilities
from labeldp.report.card.audit import audit_blocks, read_audits
from labeldp.report.card.blocks import Sections
from labeldp.report.card.effects import effect_blocks
from labeldp.report.card.formatting import band, best_guess_error, guess_gains
from labeldp.report.card.html import to_html
from labeldp.report.card.ledger import ledger_blocks, mark_own_entries
from labeldp.report.card.markdown import to_markdown
from labeldp.report.card.origin import origin_blocks
from labeldp.report.card.promise import (
    epsilon_blocks,
    noisy_label_blocks,
    number_blocks,
    protection_blocks,
    summary_blocks,
)
from labeldp.report.card.proofs import SELECTORS
from labeldp.report.card.score import score_blocks
from labeldp.report.card.warnings import alert, warnings

__all__ = ["FORMATS", "Card", "card_of_run", "make_card", "write_card"]

FORMATS = ("html", "md", "json")
_TITLE = "Privacy card"
_CRITERIA = {"log-loss": "log-loss", "auc": "AUC"}


@dataclass(frozen=True)
class Card:
    """A privacy card.

    Args:
        sections: Sentences, tables and figures by title.
        facts: The same contents as data.
        alert: The most important warning, which precedes all sections; empty if there is none.
    """

    sections: Sections
    facts: dict[str, Any]
    alert: str = ""

    def __repr__(self) -> str:
        return f"Card({', '.join(self.sections)}): save(path) writes it as .html, .md or .json"

    def to_json(self) -> str:
        """Return the facts and the text of the sections as JSON."""
        blocks = {
            title: [block if isinstance(block, str) else block.to_json() for block in blocks]
            for title, blocks in self.sections.items()
        }
        data = self.facts | {"alert": self.alert, "sections": blocks}
        return json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"

    def to_markdown(self) -> str:
        """Return the card as Markdown."""
        return to_markdown(_TITLE, self.alert, self.sections)

    def to_html(self) -> str:
        """Return the card as one HTML page without external resources."""
        return to_html(_TITLE, _subtitle(self.facts), self.alert, self.sections)

    def text(self, extension: str) -> str:
        """Return the card in the format "html", "md" or "json"."""
        return {"html": self.to_html, "md": self.to_markdown, "json": self.to_json}[extension]()

    def save(self, path: str | Path) -> None:
        """Write the card in the format of the suffix: `.html`, `.md` or `.json`."""
        path = Path(path)
        if path.suffix.removeprefix(".") not in FORMATS:
            raise InputError(f"{path} must end in .html, .md or .json.")
        path.write_text(self.text(path.suffix.removeprefix(".")), encoding="utf-8")


def make_card(facts: dict[str, Any]) -> Card:
    """Return the card of a training.

    Args:
        facts: The report of the training, which may also contain `ledger` (redacted entries), `entries` (the ids of the
            releases of this model) and `audits`.
    """
    model = Guarantee(**facts["guarantee"])
    # The score costs the held-out labels.
    stated = model.with_scoring_cost(float((facts.get("score") or {}).get("epsilon") or 0.0))
    ledger = mark_own_entries(facts.get("ledger") or [], facts.get("entries"))
    classes = (facts.get("space") or {}).get("classes") or ["yes", "no"]
    is_numeric = (facts.get("space") or {}).get("step") is not None
    facts = facts | {"ledger": ledger, "audits": facts.get("audits")}
    facts["warnings"] = warnings(facts, (stated.epsilon, stated.delta))
    mechanisms = {str(release["mechanism"]) for release in facts["releases"]}
    effects = effect_blocks(facts.get("effects"), classes, is_numeric)
    sections: Sections = {
        "In short": summary_blocks(stated, facts),
        "Warnings": list(facts["warnings"]) or ["None."],
        "What is protected": protection_blocks(stated, facts),
        "How much": epsilon_blocks(stated, model, facts),
        "A noisy label": number_blocks(stated, classes)
        if is_numeric
        else noisy_label_blocks(stated, classes, mechanisms),
        "How": [
            f"Recipe {facts['recipe']}: {facts['summary']}.",
            *_selection_sentences(facts),
            *ledger_blocks(ledger, facts["releases"], stated.unit),
        ],
        "How good": score_blocks(facts.get("score"), classes),
        **({"Effects in the model": effects} if effects else {}),
        "Audit": audit_blocks(facts["audits"], stated.epsilon, is_numeric),
        "Data, model and versions": origin_blocks(facts),
    }
    return Card(
        sections, facts | _computed_figures(stated, classes, is_numeric), alert(stated.epsilon, facts["audits"])
    )


def card_of_run(run: Path) -> Card:
    """Return the current card of a run folder, with its audits."""
    facts, ledger = _read(run, "run.json"), _read(run, "ledger.json")
    try:
        return make_card(facts | {"ledger": ledger, "audits": read_audits(run / "audit.json")})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{run} is damaged: its report cannot be read. Train again, or restore a copy.") from None


def write_card(run: Path) -> Card:
    """Write card.html, card.md and card.json into a run folder; unchanged files are not rewritten."""
    card = card_of_run(run)
    for extension in FORMATS:
        path, text = run / f"card.{extension}", card.text(extension)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        with atomic_write(path, overwrite=True) as partial:
            partial.write_text(text, encoding="utf-8")
    return card


def _selection_sentences(facts: dict[str, Any]) -> list[str]:
    n_candidates = facts.get("candidates", 1)
    if n_candidates < 2:
        return []
    selections = [release for release in facts["releases"] if release["mechanism"] in SELECTORS]
    criterion = f" by {_CRITERIA[selections[0]['by']]}" if selections and selections[0].get("by") in _CRITERIA else ""
    decision = (
        f"a private selection on other rows chose one{criterion}"
        if selections
        else "the first one is used, independently of labels"
    )
    return [f"{n_candidates} models were trained from the same releases, and {decision}."]


def _computed_figures(stated: Guarantee, classes: list[Any], is_numeric: bool) -> dict[str, Any]:
    """Return the figures that the card computes, for its JSON format."""
    if is_numeric:
        error, prior_error = best_guess_error(stated.epsilon, classes[-1] - classes[0], len(classes))
        noisy: dict[str, Any] = {"values": len(classes), "guess_off_by": error, "without_label": prior_error}
    else:
        p_true, p_other = response_probabilities(stated.epsilon, len(classes))
        noisy = {"classes": len(classes), "unchanged": p_true, "each_other": p_other}
    return {
        "stated": {"epsilon": json_number(stated.epsilon), "delta": stated.delta, "protection": band(stated.epsilon)},
        "gains": guess_gains(stated.epsilon, stated.delta),
        "noisy_label": noisy,
    }


def _subtitle(facts: dict[str, Any]) -> str:
    data, created = facts.get("data") or {}, str(facts.get("created") or "")[:10]
    description = (
        f"a model of “{data['label']}”, trained on {data['rows']:,} rows of {data['name']}" if data else "a model"
    )
    return f"For {description} by labeldp{f', {created}' if created else ''}."


def _read(run: Path, name: str) -> Any:
    try:
        return json.loads((run / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{run} is not a run folder: choose the output folder of a training.") from None
