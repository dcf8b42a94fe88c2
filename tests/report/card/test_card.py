import json
import math

import pytest
from cardfacts import FACTS, NOT_PRIVATE

import labeldp as ldp
from labeldp.core.guarantee import max_guess_accuracy
from labeldp.report.card import make_card


def guarantee(**changes):
    return FACTS | {"guarantee": FACTS["guarantee"] | changes}


def test_the_card_says_what_how_much_how_and_how_good():
    text = make_card(FACTS).to_markdown()
    for part in (
        "The label of each row",
        "the label of one row is replaced",
        "Features are not protected",
        "Epsilon 1 and delta 1e-06",
        "one in 1,000,000",
        "guesses it correctly in at most 73% of cases",
        "| one in a hundred | 1% | 2.7% |",
        "the curator who holds them",
        "| LinearQuery | training | 12,345 | 1 | 0 | `labeldp.privacy.mechanisms.linear` |",
        "Sums over rows: label moments A'Y",
        "Accuracy 81.2%, 95 % interval 75.0% to 87.5%.",
        "Not audited",
        "An audit attacks the training of a run folder",
        "- None.",
    ):
        assert part in text


def test_pure_and_local_guarantees_read_as_such():
    text = make_card(guarantee(delta=0.0, trust="local", unit="user")).to_markdown()
    assert "% of cases.\n" in text
    assert "there is no loss beyond epsilon" in text
    assert "nobody but their owners" in text
    assert "All labels of each user" in text
    assert "Features of these rows are protected" in make_card(guarantee(unit="record")).to_markdown()


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_what_is_not_private_says_so_before_anything_else(form):
    text = make_card(NOT_PRIVATE).text(form)
    assert "NOTHING IS PROTECTED" in text
    if form != "json":
        assert text.index("NOTHING IS PROTECTED") < text.index("In short")
        assert "73%" not in text
    else:
        read = json.loads(text, parse_constant=pytest.fail)  # Infinity is no JSON
        assert read["alert"].startswith("NOTHING IS PROTECTED")
        assert read["stated"] == {"epsilon": "inf", "delta": 1e-6, "protection": "none"}
        assert [gain["at_most"] for gain in read["gains"]] == [1.0, 1.0, 1.0]


def test_a_private_card_has_no_alert():
    assert make_card(FACTS).alert == ""
    assert 'role="alert"' not in make_card(FACTS).to_html()


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (None, "Not measured: there were no held-out rows."),
        ({"n_rows": 40, "accuracy": [None, 0.0, 1.0], "method": "m"}, "Accuracy cannot be measured on 40 rows"),
    ],
)
def test_a_score_that_is_not_there_is_said_to_be_so(score, message):
    assert message in make_card(FACTS | {"score": score}).to_markdown()


def test_a_score_of_numbers_has_no_accuracy():
    text = make_card(FACTS | {"score": {"n_rows": 40, "mean_error": [0.5, 0.25, None], "method": "m"}}).to_markdown()
    assert "- mean error: **0.500** (0.250 to unknown, measured privately)" in text
    assert "| mean error | 0.500 | 0.250 to unknown |" in text


def test_held_out_labels_count_in_what_is_stated():
    card = make_card(guarantee(epsilon=1.9987) | {"score": FACTS["score"] | {"epsilon": 2.0}})
    assert card.facts["stated"]["epsilon"] == 2.0
    assert "The model alone: epsilon 1.999." in card.to_markdown()
    assert "The model alone" not in make_card(FACTS).to_markdown()


def test_a_model_of_public_rows_protects_more_than_its_score():
    assert "The model alone protects whole rows" in make_card(FACTS | {"model_unit": "record"}).to_markdown()


def test_a_card_is_saved_as_its_name_says(tmp_path):
    card = make_card(FACTS)
    for name, text in {"c.html": card.to_html(), "c.md": card.to_markdown(), "c.json": card.to_json()}.items():
        card.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    with pytest.raises(ldp.InputError, match=r"must end in \.html, \.md or \.json"):
        card.save(tmp_path / "c.pdf")


def test_the_data_hold_the_facts_and_every_section():
    card = make_card(FACTS)
    data = json.loads(card.to_json())
    assert {name: data[name] for name in FACTS} == FACTS
    assert list(data["sections"]) == list(card.sections)
    assert data["noisy_label"]["unchanged"] == pytest.approx(math.e / (1 + math.e))
    assert all(blocks for blocks in data["sections"].values())


def test_names_of_classes_cannot_break_the_text():
    space = {"classes": ["a|b", "<script>alert(1)</script>", "*x*"], "missing": "error"}
    card = make_card(FACTS | {"space": space, "data": {"name": "[a](b)", "rows": 3, "label": "y"}})
    assert "<script" not in card.to_html()
    text = card.to_markdown()
    assert "\\<script>" in text
    assert "a\\|b" in text
    assert "\\[a\\](b)" in text


def test_even_odds_become_at_most_the_logistic_of_epsilon():
    assert max_guess_accuracy(0.0) == 0.5
    assert abs(max_guess_accuracy(1.0) - 0.7311) < 1e-4
    assert max_guess_accuracy(1e7) == 1.0
