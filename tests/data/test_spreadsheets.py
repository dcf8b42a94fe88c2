import polars as pl
import pytest

import labeldp as ldp
from labeldp.data.spreadsheets import escape_formulas


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical], ids=str)
@pytest.mark.parametrize(
    "text", ["=1+2", "+A1", "-A1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "-1+2", "+", "=1"]
)
def test_texts_that_begin_as_formulas_get_a_quote(text, kind):
    frame, changed = escape_formulas(pl.DataFrame({"a": pl.Series([text, "fine", None], dtype=kind), "n": [-1, 2, 3]}))
    assert frame["a"].to_list() == ["'" + text, "fine", None]
    assert frame["n"].to_list() == [-1, 2, 3]
    assert changed == 1


@pytest.mark.parametrize("text", ["a=1", "-5", "+3.5", "-1e-5", "-.5", "'=1", "", "<=50K", "5-3"])
def test_other_texts_and_numbers_stay(text):
    frame = pl.DataFrame({"a": [text], "b": [-0.5]})
    assert escape_formulas(frame)[1] == 0
    assert escape_formulas(frame)[0].equals(frame)


def test_names_of_columns_get_a_quote_too():
    frame, changed = escape_formulas(pl.DataFrame({"=a": ["=1"], "^b$": ["c"]}))
    assert (frame.columns, frame["'=a"].to_list(), changed) == (["'=a", "^b$"], ["'=1"], 2)


@pytest.mark.parametrize("values", [[b"a"], [[1]], [{"a": 1}]], ids=str)
def test_what_a_csv_cannot_hold_is_one_sentence(values):
    with pytest.raises(ldp.InputError, match=r"Column 'id' holds .*, which a CSV cannot hold"):
        escape_formulas(pl.DataFrame({"id": values}))
