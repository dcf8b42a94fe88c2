import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from cardfacts import FACTS

from labeldp.report.card import make_card

SECTION = "Effects in the model"
AGE = {
    "names": ["age"],
    "kind": "number",
    "bins": [["below 30", "up to 30", "30 to 12,500", "above 12,500", "no value"]],
    "values": [-1.0, 0.0, 1.0, 4.0, -4.0],
    "strength": 2.6,
    "edges": [[30.0, 12500.0]],
    "classes": None,
}
JOB = {
    "names": ["job <b>"],
    "kind": "category",
    "bins": [["cook & maid", "nurse", "other values"]],
    "values": [-0.5, 0.25, 0.0],
    "strength": 0.4,
    "edges": [[]],
    "classes": None,
}
CROSS = {
    "names": ["age", "job <b>"],
    "kind": "cross",
    "bins": [["below 30", "up to 30", "above 30"], ["cook & maid", "nurse"]],
    "values": [[-1.0, 0.0], [0.0, 2.0], [0.0, 1.0]],
    "strength": 0.3,
    "edges": [[30.0], []],
    "classes": None,
}


def card(*shown, count=None, trees=False, classes=("no", "yes")):
    effects = {"count": count or len(shown), "shown": list(shown), "trees": trees}
    return make_card(FACTS | {"effects": effects, "space": {"classes": list(classes)}})


def section(text):
    return text.partition(f"## {SECTION}")[2].partition("\n## ")[0]


def rects(page, title, kind):
    svg = re.search(rf'<svg class="effect" role="img" aria-label="{re.escape(title)}".*?</svg>', page)[0]
    return [
        {name: float(value) for name, value in re.findall(r'(x|y|width|height|fill-opacity)="([\d.]+)%?"', found)}
        for found in re.findall(rf'<rect class="{kind}".*?/>', svg)
    ]


def test_a_training_without_effects_has_no_such_section():
    assert SECTION not in make_card(FACTS).sections
    assert SECTION not in make_card(FACTS | {"effects": None}).sections


def test_every_format_says_the_strongest_effects():
    made = card(AGE, JOB, CROSS, count=12)
    text = section(made.to_markdown())
    assert "the log-odds of “yes”" in text
    assert "they cost no privacy beyond the model" in text
    assert "3 of 12 effects are shown: the strongest." in text
    assert "trees" not in text
    assert "- **age.** Highest for above 12,500 (+4.00), lowest for no value (-4.00)." in text
    assert "Highest for nurse (+0.25), lowest for cook & maid (-0.50)." in text
    assert "Highest for nurse and up to 30 (+2.00), lowest for cook & maid and below 30 (-1.00)." in text
    page = made.to_html()
    assert page.count('<svg class="effect"') == 3
    assert "<b>" not in page.partition("</h1>")[2]
    pictures = json.loads(made.to_json())["sections"][SECTION][-1]["pictures"]
    assert [each["picture"] for each in pictures] == ["age", "job <b>", "age x job <b>"]


def test_trees_are_mentioned_where_they_add_to_the_effects():
    assert "Boosted trees add to these effects" in section(card(AGE, trees=True).to_markdown())


def test_weak_effects_are_not_drawn():
    weak = AGE | {"names": ["weak"], "strength": 0.009}
    text = section(card(JOB, weak).to_markdown())
    assert "weak" not in text
    assert "1 of 2 effects are shown: the strongest." in text
    nothing = card(weak)
    assert "No column has a strong effect on the predictions" in section(nothing.to_markdown())
    assert '<svg class="effect"' not in nothing.to_html()


def test_steps_reach_from_zero_as_far_as_values():
    page = card(AGE).to_html()
    up, down = rects(page, "age", "up"), rects(page, "age", "down")
    (axis,) = rects(page, "age", "axis")
    zero = axis["y"] + 0.5
    heights = {each["x"]: zero - each["y"] if each in up else -each["height"] for each in up + down}
    drawn = np.array([heights[x] for x in sorted(heights)])
    assert drawn / drawn[3] == pytest.approx([-0.25, 0, 0.25, 1, -1])
    assert max(each["x"] + each["width"] for each in up + down) == pytest.approx(100, abs=0.1)
    apart = sorted(heights)[4] - sorted(heights)[3]
    assert apart > 1.5 * (sorted(heights)[1] - sorted(heights)[0])  # a bin without order stands apart
    assert ">30<" in page
    assert ">12.5k<" in page


def test_bars_of_categories_go_left_and_right():
    page = card(JOB).to_html()
    (up,), down = rects(page, "job &lt;b&gt;", "up"), rects(page, "job &lt;b&gt;", "down")
    assert [each["width"] for each in down] == pytest.approx([2 * up["width"], 0])
    assert down[0]["x"] + down[0]["width"] == pytest.approx(up["x"])


def test_a_cross_has_numbers_across_and_shades():
    page = card(CROSS).to_html()
    title = "age x job &lt;b&gt;"
    up, down = rects(page, title, "up"), rects(page, title, "down")
    assert [each["fill-opacity"] for each in up] == [1, 0.5]  # both nurses
    assert up[0]["y"] == up[1]["y"] > down[0]["y"]
    assert up[0]["x"] < up[1]["x"]
    assert [each["fill-opacity"] for each in down] == [0.5]


def test_several_classes_are_rows_or_columns():
    ages = AGE | {"values": np.outer(AGE["values"], [1.0, -1.0]).tolist(), "classes": [0, 2]}
    jobs = JOB | {"values": np.outer(JOB["values"], [1.0, -1.0]).tolist(), "classes": [0, 2]}
    both = CROSS | {"values": np.expand_dims(CROSS["values"], -1).tolist(), "classes": [2]}
    text = section(card(ages, jobs, both, classes=("a", "b", "c")).to_markdown())
    assert "the score of each class" in text
    assert "“a”: Highest for above 12,500 (+4.00). “c”: Highest for no value (+4.00)." in text
    assert "Columns are classes: 1 “a”; 2 “c”." in text
    assert "age x job <b>, class “c”" in text.replace("\\", "")


@pytest.mark.parametrize("shown", [AGE, JOB, CROSS])
def test_pictures_are_well_formed_and_within_their_frame(shown):
    class Reader(HTMLParser):
        def handle_startendtag(self, tag, attributes):
            facts = dict(attributes)
            if tag == "rect":
                assert float(facts["x"].rstrip("%")) + float(facts["width"].rstrip("%")) <= 100.1
                assert float(facts["y"]) >= 0

    page = card(shown).to_html()
    Reader().feed(page[page.index('<div class="gallery">') :])
