import pytest
from cardfacts import FACTS, entry

from labeldp.report.card import make_card

SPENT = FACTS["guarantee"]


def warned(**facts):
    return "\n".join(make_card(FACTS | facts).facts["warnings"])


def test_warnings_of_the_training_are_shown():
    assert "- Beware." in make_card(FACTS | {"warnings": ["Beware."]}).to_markdown()
    assert 'class="warnings"' in make_card(FACTS | {"warnings": ["Beware."]}).to_html()
    assert 'class="warnings"' not in make_card(FACTS).to_html()


def test_other_uses_of_the_labels_are_added_up():
    assert warned(spent=SPENT) == ""
    assert "epsilon 3 and delta 1e-06 in all" in warned(spent=SPENT | {"epsilon": 3.0})


@pytest.mark.parametrize(
    ("how", "bad"),
    [
        ("GNMax: data-dependent, by Theorem 6", True),
        ("GNMax: data-dependent, unsanitized", True),
        ("GNMax: data-dependent, sanitized by smooth sensitivity", False),
        ("GNMax: data-independent, up to its caps", False),
    ],
)
def test_an_epsilon_that_depends_on_secret_votes(how, bad):
    assert ("not sanitized" in warned(guarantee=SPENT | {"derivation": how})) is bad


def test_an_accuracy_on_clean_labels():
    assert "clean labels" in warned(score=FACTS["score"] | {"method": "accuracy on clean labels"})
    clean = FACTS["score"] | {"clean": True, "auc": [0.9, 0.8, 1.0]}
    assert "clean labels" in warned(score=clean)
    text = make_card(FACTS | {"score": clean}).to_markdown()
    assert "measured privately" not in text
    assert "without clean labels" not in text


def test_models_that_were_scored_on_the_same_labels():
    own, other = entry("r", "LinearQuery"), entry("x", "LinearQuery")
    ledger = [own, entry("s", origin=["r"]), other, entry("t", origin=["x"])]
    assert "1 other model was scored" in warned(ledger=ledger, entries=["r"])
    assert warned(ledger=ledger[:2], entries=["r"]) == ""


def test_an_audit_that_refutes_the_stated_epsilon_stands_above_all():
    card = make_card(FACTS | {"audits": [{"kind": "one-run", "lower_bound": 1.2, "confidence": 0.95}]})
    assert card.alert.startswith("THE AUDIT CONTRADICTS")
    assert card.to_html().index("THE AUDIT CONTRADICTS") < card.to_html().index("In short")
    assert make_card(FACTS | {"audits": [{"lower_bound": 1.0}]}).alert == ""
