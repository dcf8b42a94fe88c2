from html.parser import HTMLParser

import pytest
from cardfacts import FACTS, NOT_PRIVATE, ONE

from labeldp.report.card import make_card

MANY = FACTS | {"space": {"classes": [f"class {i}" for i in range(100)], "missing": "error"}}
VOID = {"meta", "br", "wbr"}


class Seen(HTMLParser):
    """Collects tags, texts and attributes, and checks that what is opened is closed."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("facts", [FACTS, NOT_PRIVATE, MANY, FACTS | {"audits": [ONE]}])
def test_the_page_is_well_formed_and_asks_nothing_of_the_network(facts):
    page = make_card(facts).to_html()
    seen = Seen(page)
    names = {tag for tag, _ in seen.tags}
    assert "b" not in names  # text is escaped
    assert "sums <b>of</b> rows & labels" in seen.text
    assert not {"script", "link", "img", "iframe", "object", "form"} & names
    assert not any({"src", "href"} & set(attrs) for _, attrs in seen.tags)
    assert "://" not in page
    assert "url(" not in page
    assert "@import" not in page


def test_screen_readers_find_headings_captions_and_descriptions():
    seen = Seen(make_card(FACTS | {"audits": [ONE]}).to_html())
    count = {name: sum(tag == name for tag, _ in seen.tags) for name in ("h1", "h2", "section", "table", "caption")}
    assert count["h1"] == 1
    assert count["h2"] == count["section"] >= 8
    assert count["table"] == count["caption"]
    assert ("html", {"lang": "en"}) in seen.tags
    ids = {attrs["id"] for _, attrs in seen.tags if "id" in attrs}
    assert all(attrs["aria-labelledby"] in ids for tag, attrs in seen.tags if tag == "section")
    drawings = [attrs for tag, attrs in seen.tags if tag == "svg" and "class" in attrs]
    assert drawings
    assert all(attrs.get("aria-label") or attrs.get("aria-hidden") for attrs in drawings)
    assert all(attrs["role"] == "table" for tag, attrs in seen.tags if tag == "table")


def test_a_hundred_classes_have_a_few_bars():
    seen = Seen(make_card(MANY).to_html())
    assert "as each of the 96 other classes" in seen.text
    assert "100, declared: class 0, " in seen.text
    assert "and 88 more" in seen.text
    assert sum(attrs.get("class") == "bar-name" for _, attrs in seen.tags) == 5


def test_classes_that_were_inferred_are_not_called_declared():
    text = make_card(MANY | {"classes_inferred": True}).to_markdown()
    assert "100, inferred: class 0, " in text
    assert "declared" not in text


def test_classes_of_which_nothing_is_known_are_left_out():
    known, unknown = [0.5, 0.25, 0.75], [None, 0.0, 1.0]
    by_class = {"recall": [known] + [unknown] * 99, "precision": [unknown] * 100}
    text = make_card(MANY | {"score": FACTS["score"] | by_class}).to_markdown()
    assert "| class 0 | 50.0% (25.0% to 75.0%) | unknown |" in text
    assert "| class 1 |" not in text
    assert "1 of 100 classes are shown" in text
