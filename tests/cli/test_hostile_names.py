"""Names from files reach neither the terminal as commands nor a spreadsheet as formulas."""

import polars as pl
import pytest

ESCAPE = "\x1b[31m"
CALC = "=cmd|calc!A1"


@pytest.fixture
def trained(labeldp):
    """A run whose classes are a formula and a command for terminals, and its data."""
    rows = 200
    columns = {ESCAPE: ["a", "b"] * 100, "id": [f"-{i}+1" for i in range(rows)], "y": [CALC, f"{ESCAPE}no"] * 100}
    pl.DataFrame(columns).write_csv("t.csv")
    pl.DataFrame(columns).write_parquet("t.parquet")
    words = ("train", "t.csv", "--label", "y", "--classes", f"{CALC},{ESCAPE}no", "--epsilon", 20, "--ids", "id")
    code, out, err = labeldp(*words, "--out", "run", "--recipe", "moments")
    assert code == 0, err
    assert "\x1b" not in out + err


@pytest.mark.usefixtures("trained")
def test_predictions_hold_no_formulas(labeldp):
    _, out, err = labeldp("predict", "run", "t.csv", "--ids", "id")
    assert err.startswith("Note: 300 texts look like formulas of a spreadsheet")
    assert f"\n'-0+1,'{CALC}," in out
    assert "\x1b" not in out
    assert "\\x1b[31mno" in out
    _, _, err = labeldp("predict", "run", "t.csv", "--out", "predicted.csv")
    assert err == (
        "Note: 100 texts look like formulas of a spreadsheet and have a quote (') before them: a .parquet file "
        "(--out) contains them unchanged.\nWrote predicted.csv: 200 rows.\n"
    )
    assert set(pl.read_csv("predicted.csv")["prediction"]) == {f"'{CALC}", f"{ESCAPE}no"}
    _, _, err = labeldp("predict", "run", "t.csv", "--out", "predicted.parquet")
    assert err == "Wrote predicted.parquet: 200 rows.\n"
    assert set(pl.read_parquet("predicted.parquet")["prediction"]) == {CALC, f"{ESCAPE}no"}


@pytest.mark.usefixtures("trained")
def test_no_name_commands_the_terminal(labeldp):
    pl.DataFrame({ESCAPE: [f"{ESCAPE}x"] * 9}).write_csv("other.csv")
    pl.DataFrame({f"{ESCAPE}z": [1]}).write_csv(f"{ESCAPE}.csv")
    for words in (
        ("predict", "run", "other.csv"),
        ("predict", "run", f"{ESCAPE}.csv"),
        ("predict", f"run{ESCAPE}", "t.csv"),
        ("privatize", "t.csv", "--label", "z", "--classes", "a,b", "--epsilon", 1, "--out", "o.csv"),
        ("privatize", "t.csv", f"--{ESCAPE}", "z"),
        ("card", "run", "--format", "md"),
        ("ledger", "show", "t.csv"),
        ("ledger", "show", f"{ESCAPE}.csv"),
    ):
        _, out, err = labeldp(*words)
        assert out + err
        assert "\x1b" not in out + err, words


def test_a_ledger_of_odd_names_is_shown_as_it_is_written(labeldp):
    name = f"{ESCAPE}[bold]y[/x]"
    pl.DataFrame({"x": [1, 2], name: ["a", "b"]}).write_csv("odd.csv")
    words = ("privatize", "odd.csv", "--label", name, "--classes", "a,b", "--epsilon", 1, "--out", "o.csv")
    assert labeldp(*words)[0] == 0
    code, out, _ = labeldp("ledger", "show", "odd.csv")
    assert (code, "\x1b" in out) == (0, False)
    assert "\\x1b[31m[bold]y[/x]" in out


def test_private_labels_stay_equal_to_the_declared_classes(labeldp):
    """A copy is for training: a quote before a class would make another class of it."""
    pl.DataFrame({"x": range(50), "y": [CALC, "@no"] * 25}).write_csv("t.csv")
    words = ("privatize", "t.csv", "--label", "y", "--classes", f"{CALC},@no", "--epsilon", 1, "--out", "o.csv")
    assert labeldp(*words)[0] == 0
    assert set(pl.read_csv("o.csv")["y"]) <= {CALC, "@no"}
