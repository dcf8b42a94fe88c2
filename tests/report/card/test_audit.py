import json

import pytest
from cardfacts import FACTS, NOT_PRIVATE, ONE

from labeldp.report.card import make_card
from labeldp.report.card.audit import proven_epsilon, read_audits


@pytest.mark.parametrize(
    "data", [ONE, [ONE], {"audits": [ONE]}, {"one-run": {k: v for k, v in ONE.items() if k != "kind"}}]
)
def test_audits_come_alone_in_a_list_or_by_name(tmp_path, data):
    (tmp_path / "audit.json").write_text(json.dumps(data))
    assert read_audits(tmp_path / "audit.json") == [ONE]


def test_no_file_is_no_audit_and_a_damaged_one_is_said_to_be_so(tmp_path):
    assert read_audits(tmp_path / "audit.json") is None
    (tmp_path / "audit.json").write_text("{")
    audits = read_audits(tmp_path / "audit.json")
    assert proven_epsilon(audits) is None
    assert "cannot be read" in make_card(FACTS | {"audits": audits}).to_markdown()


def test_bounds_stand_beside_what_is_stated_and_the_rest_is_shown_as_it_is():
    card = make_card(FACTS | {"audits": [ONE, {"lower_bound": None, "nested": {"a": [1] * 99}}]})
    text = card.to_markdown()
    assert "The true epsilon lies between 0.412, which the audit proves, and the stated 1." in text
    assert "| one-run | 0.412 | 95% | 1 |" in text
    assert "unnamed | " not in text  # it has no bound
    assert "Details of the audit: unnamed" in text
    assert "| canaries | 500 |" in text
    assert "audited: at least 0.412" in card.to_html()


def test_a_file_of_several_audits_with_notes(tmp_path):
    inferred = {"kind": "label inference", "attack": 0.71, "features_alone": 0.68, "allowed": 0.23, "n_rows": 900}
    data = {"format": 1, "trainings": 2, "audits": [ONE, inferred], "notes": ["No real label was used."]}
    (tmp_path / "audit.json").write_text(json.dumps(data))
    audits = read_audits(tmp_path / "audit.json")
    assert proven_epsilon(audits) == ONE["lower_bound"]
    text = make_card(FACTS | {"audits": audits}).to_markdown()
    assert "- No real label was used." in text
    assert "- Made in 2 trainings." in text
    assert "an attacker guesses 71% of labels with the model, and 68%" in text
    assert "allows 23% more" in text


def test_an_attack_that_finds_nothing_proves_nothing():
    card = make_card(FACTS | {"audits": [ONE | {"lower_bound": 0.0, "rate": [0.5, 0.4]}]})
    text = card.to_markdown()
    assert "The attack found nothing" in text
    assert "Audit: **≥ 0** (the attack found nothing)" in text
    assert "| rate | 0.5, 0.4 |" in text
    assert "audited: nothing found" in card.to_html()


def test_an_audit_of_what_is_not_private():
    card = make_card(NOT_PRIVATE | {"audits": [{"kind": "m", "lower_bound": 6.1, "stated_epsilon": "inf"}]})
    assert "at least 6.1; there is no upper bound" in card.to_markdown()
    assert card.alert.startswith("NOTHING IS PROTECTED")
