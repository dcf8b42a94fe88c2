import pytest

from labeldp.core.errors import InputError
from labeldp.recipes.feature_crosses import CROSSING_RECIPES, add_crosses, check_crosses, parse_cross, parse_crosses
from labeldp.recipes.registry import RECIPES as ALL
from labeldp.recipes.registry import get_recipe

COLUMNS = ["month", "day", "a, or b", 'say "x"', "p;q", " space"]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", ()),
        (" ; ", ()),
        ("month,day", (("month", "day"),)),
        (" month , day ; day,p;", "no"),
        (' month , day ; day,"p;q";', (("month", "day"), ("day", "p;q"))),
        ('"a, or b",day', (("a, or b", "day"),)),
        ('"say ""x""",month', (('say "x"', "month"),)),
        ('" space",month', ((" space", "month"),)),
    ],
)
def test_crosses_are_read_from_a_text(text, pairs):
    if pairs == "no":
        with pytest.raises(InputError, match="'p' for the cross 'day,p'"):
            parse_crosses(text, COLUMNS)
    else:
        assert parse_crosses(text, COLUMNS) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("month", "must name two different columns"),
        ("month,month", "must name two different columns"),
        ("month,day,day", "must name two different columns"),
        ("month,year", "no feature column 'year' for the cross 'month,year'"),
        ("month,day;day,month", "named twice"),
        ('"month,day', "a quote that does not close"),
        ('"month"x,day', "a quote that does not close"),
    ],
)
def test_wrong_crosses_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_crosses(text, COLUMNS)
    with pytest.raises(InputError, match=message):
        check_crosses("auto", {"cross": text}, COLUMNS)
    check_crosses("moments", {"cross": text}, COLUMNS)  # whose option of that name means something else


def test_pairs_become_an_option_that_is_read_back():
    pairs = [(a, b) for a in COLUMNS for b in COLUMNS if a < b]
    options = add_crosses("additive", {"crosses": 2}, pairs)
    assert options["crosses"] == 2
    assert parse_crosses(options["cross"], COLUMNS) == tuple(pairs)


@pytest.mark.parametrize("none", [None, [], ()])
def test_no_crosses_leave_the_options_alone(none):
    assert add_crosses("moments", {"a": 1}, none) == {"a": 1}


@pytest.mark.parametrize(
    ("recipe", "options", "crosses", "message"),
    [
        ("moments", {}, [("month", "day")], "for the recipes additive and auto, not moments"),
        ("auto", {"cross": "month,day"}, [("month", "day")], "give all of them in one way"),
        ("auto", {}, "month,day", "is a pair of names"),
        ("auto", {}, ["month,day"], "is a pair of names"),
        ("auto", {}, [("month", 3)], "is a pair of names"),
        ("auto", {}, [("month", "")], "is a pair of names"),
        ("auto", {}, [("a", "b", "c")], "is a pair of names"),
    ],
)
def test_what_is_no_cross_is_refused(recipe, options, crosses, message):
    with pytest.raises(InputError, match=message):
        add_crosses(recipe, options, crosses)


def test_the_recipes_that_take_crosses_are_listed():
    get_recipe("auto")
    assert {name for name, each in ALL.items() if "cross" in each.steps.__annotations__} == set(CROSSING_RECIPES)


def test_a_cross_on_the_command_line_is_two_names():
    assert parse_cross('"a, or b",day') == ("a, or b", "day")
    for text in ("month", "month,day;day,hour", "a,b,c", ""):
        with pytest.raises(InputError, match="must name two different columns"):
            parse_cross(text)
