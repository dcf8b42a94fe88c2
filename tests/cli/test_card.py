import json
import webbrowser

import pytest

TRAIN = ("train", "people.csv", "--label", "income", "--classes", "low,high", "--epsilon", 1, "--recipe", "moments")


@pytest.fixture
def run(labeldp, folder):
    assert labeldp(*TRAIN, "--out", "run")[0] == 0
    return folder / "run"


@pytest.fixture
def opened(monkeypatch):
    pages = []
    monkeypatch.setattr(webbrowser, "open", lambda page: pages.append(page) or True)
    return pages


def test_a_training_leaves_a_card_in_three_forms(run):
    data = json.loads((run / "card.json").read_text(encoding="utf-8"))
    assert data["stated"] == {"epsilon": 1.0, "delta": 0.0, "protection": "strong"}
    assert data["data"] == {"name": "people.csv", "rows": 300, "label": "income"}
    assert data["model"] == "linear model"
    assert data["packages"]["numpy"]
    assert [each["purpose"] for each in data["ledger"]] == ["training", "scoring", "scoring"]
    assert data["warnings"] == []
    for name in ("card.html", "card.md"):
        text = (run / name).read_text(encoding="utf-8")
        assert "people.csv" in text
        assert "labeldp.privacy.mechanisms.linear" in text.replace("<wbr>", "")


def test_the_card_opens_in_a_browser(labeldp, run, opened):
    code, out, err = labeldp("card", "run")
    assert (code, err) == (0, "")
    assert str(run.resolve() / "card.html") in out
    assert opened == [(run.resolve() / "card.html").as_uri()]
    code, out, _ = labeldp("card", "run", "--format", "html")
    assert len(opened) == 2


def test_no_browser_is_opened_where_none_is_wanted_or_found(labeldp, run, opened, monkeypatch):
    code, out, _ = labeldp("card", "run", "--no-open")
    assert code == 0
    assert "card.html (card.md and card.json beside it)" in out
    assert opened == []
    monkeypatch.setattr(webbrowser, "open", lambda page: False)
    code, out, err = labeldp("card", "run")
    assert code == 0
    assert "No browser was found" in err


def test_the_card_can_be_printed(labeldp, run, opened):
    assert labeldp("card", "run", "--format", "md")[1] == (run / "card.md").read_text(encoding="utf-8")
    assert json.loads(labeldp("card", "run", "--format", "json")[1])["recipe"] == "moments"
    assert labeldp("card", "run", "--format", "html", "--no-open")[1].startswith("<!doctype html>")
    assert opened == []


def test_an_audit_that_came_later_is_shown(labeldp, run, opened):
    (run / "audit.json").write_text(json.dumps({"kind": "one-run", "lower_bound": 1.5, "confidence": 0.95}))
    code, _, err = labeldp("card", "run", "--no-open")
    assert code == 0
    assert "THE AUDIT CONTRADICTS" in err
    assert "at least 1.5" in (run / "card.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("card", "absent"), "absent is not a run folder"),
        (("card", "run", "--format", "pdf"), "choose one of html, md"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(labeldp, words, message):
    code, out, err = labeldp(*words)
    assert (code, out) == (2, "")
    assert message in err
