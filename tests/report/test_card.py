import json
from html.parser import HTMLParser

import pytest

import labeldp as ldp
from labeldp.report.card import best_guess, make_card

FACTS = {
    "recipe": "moments",
    "summary": "sums <b>of</b> rows & labels",
    "guarantee": {"epsilon": 1.0, "delta": 1e-6, "unit": "label", "trust": "central", "derivation": ""},
    "releases": [{"mechanism": "LinearQuery", "rows": 12345, "epsilon": 1.0}],
    "score": {"rows": 400, "accuracy": [0.8125, 0.75, 0.875], "method": "noisy counts"},
    "warnings": [],
}


def test_the_card_says_what_how_much_how_and_how_good():
    text = make_card(FACTS).to_markdown()
    for part in (
        "The label of each row",
        "Epsilon 1 and delta 1e-06",
        "73% confidence at most, except with probability 1e-06",
        "the curator who holds them",
        "LinearQuery on 12,345 labels, epsilon 1.",
        "Accuracy 81.2%, 95 % interval 75.0% to 87.5%.",
        "- None.",
    ):
        assert part in text


def test_pure_and_local_guarantees_read_as_such():
    guarantee = FACTS["guarantee"] | {"delta": 0.0, "trust": "local", "unit": "user"}
    text = make_card(FACTS | {"guarantee": guarantee}).to_markdown()
    assert "confidence at most.\n" in text
    assert "nobody but their owners" in text
    assert "All labels of each user" in text


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (None, "Not measured: no rows were set aside."),
        ({"rows": 40, "accuracy": [None, 0.0, 1.0], "method": "m"}, "Accuracy cannot be told from 40 rows"),
    ],
)
def test_a_score_that_is_not_there_is_said_to_be_so(score, said):
    assert said in make_card(FACTS | {"score": score}).to_markdown()


def test_other_uses_of_the_labels_are_added_up():
    alone = make_card(FACTS | {"spent": FACTS["guarantee"]}).to_markdown()
    assert "in all" not in alone
    more = make_card(FACTS | {"spent": FACTS["guarantee"] | {"epsilon": 3.0}}).to_markdown()
    assert "epsilon 3 and delta 1e-06 in all" in more


def test_warnings_are_shown():
    assert "- Beware." in make_card(FACTS | {"warnings": ["Beware."]}).to_markdown()


def test_the_page_is_well_formed_and_asks_nothing_of_the_network():
    class Seen(HTMLParser):
        tags, text = set(), ""

        def handle_starttag(self, tag, attrs):
            self.tags.add(tag)

        def handle_data(self, data):
            self.text += data

    page, seen = make_card(FACTS).to_html(), Seen()
    seen.feed(page)
    assert "b" not in seen.tags  # text is escaped
    assert "sums <b>of</b> rows & labels" in seen.text
    assert not {"script", "link", "img", "iframe"} & seen.tags
    assert "http" not in page


def test_a_card_is_saved_as_its_name_says(tmp_path):
    card = make_card(FACTS)
    for name, text in {"c.html": card.to_html(), "c.md": card.to_markdown(), "c.json": card.to_json()}.items():
        card.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    assert json.loads(card.to_json()) == FACTS
    with pytest.raises(ldp.InputError, match=r"must end in \.html, \.md or \.json"):
        card.save(tmp_path / "c.pdf")


def test_even_odds_become_at_most_the_logistic_of_epsilon():
    assert best_guess(0.0) == 0.5
    assert abs(best_guess(1.0) - 0.7311) < 1e-4
    assert best_guess(1e7) == 1.0
