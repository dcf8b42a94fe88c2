"""Numbers on the command line: train, predict, privatize, the card."""

import json

import numpy as np
import polars as pl
import pytest


@pytest.fixture
def amounts(folder):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 2))
    y = np.clip(50 + 12 * x[:, 0] + generator.normal(0, 5, 400), 0, 100)
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "amount": y})
    frame.write_parquet("amounts.parquet")
    frame.write_csv("amounts.csv")
    frame.with_columns(pl.col("amount").round().cast(pl.Int32)).write_parquet("whole.parquet")
    frame.with_columns(pl.col("amount").round().cast(pl.Int32)).write_csv("whole.csv")
    return frame


TRAIN = ("--label", "amount", "--range", "0,100,1", "--epsilon", "4")


@pytest.mark.parametrize("name", ["amounts.parquet", "amounts.csv", "whole.parquet", "whole.csv"])
def test_train_and_predict(labeldp, amounts, name):
    code, out, _ = labeldp("train", name, *TRAIN, "--task", "regression", "--out", "run")
    assert code == 0
    assert out.startswith("Wrote run: root mean squared error ")
    assert "95 %" in out
    assert "Each label has spent epsilon 4 of 4 so far." in out
    assert "accura" not in out
    code, out, _ = labeldp("predict", "run", name, "--out", "new.parquet")
    assert code == 0
    new = pl.read_parquet("new.parquet")
    assert new.columns == ["prediction", "low", "high"]
    assert np.corrcoef(new["prediction"], amounts["amount"])[0, 1] > 0.7
    assert ((new["low"] <= new["prediction"]) & (new["prediction"] <= new["high"])).all()


def test_json_and_card(labeldp, amounts, folder):
    how = ("--recipe", "bins", "--option", "loss=absolute", "--out", "run", "--json")
    code, out, _ = labeldp("train", "amounts.csv", *TRAIN, *how)
    assert code == 0
    report = json.loads(out)
    assert report["space"]["step"] == 1.0
    assert set(report["score"]) == {"n_rows", "epsilon", "rmse", "mae", "careful", "method"}
    assert [each["mechanism"] for each in report["releases"]] == ["NumberSums", "RROnBins"]
    card = (folder / "run" / "card.md").read_text()
    assert "Root mean squared error" in card
    assert "Mean absolute error" in card
    assert card.count("| LossSum | scoring |") == 2
    assert "Unknown to this version" not in card
    assert "ccuracy" not in card
    code, _, err = labeldp("audit", "run", "amounts.csv")
    assert code == 2
    assert "rr-on-bins" in err


@pytest.mark.parametrize("name", ["amounts.parquet", "whole.parquet", "amounts.csv", "whole.csv"])
def test_privatize(labeldp, amounts, name):
    out = f"noisy.{name.partition('.')[2]}"
    code, text, _ = labeldp("privatize", name, *TRAIN, "--out", out)
    assert code == 0
    assert "noise of standard deviation 35.4" in text
    read = pl.read_parquet if name.endswith("parquet") else pl.read_csv
    before, after = read(name), read(out)
    assert after["amount"].is_between(0, 100).all()
    assert after.drop("amount").equals(before.drop("amount"))
    assert not after["amount"].equals(before["amount"])
    assert np.corrcoef(after["amount"], before["amount"])[0, 1] > 0.15
    if name == "whole.csv":
        assert "." not in "".join(map(str, after["amount"]))


BAD = {
    "both": (("--classes", "a,b"), "either the classes, or a range"),
    "task": (("--task", "forecast"), "must be classification or regression"),
    "classification with a range": (("--task", "classification"), "Regression needs --range"),
    "a recipe for classes": (("--recipe", "moments"), "learns classes, and these labels are numbers"),
    "a model for classes": (("--model", "logistic"), "choose auto, ridge, trees"),
    "a loss": (("--recipe", "bins", "--option", "loss=cubic"), "must be one of squared, absolute, poisson"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(labeldp, amounts, folder, case):
    before = set(folder.iterdir())
    more, message = BAD[case]
    code, out, err = labeldp("train", "amounts.csv", *TRAIN, *more, "--out", "run")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("text", ["0,100", "0,100,x", "100,0,1", "0,100,33", ""])
def test_a_range_that_is_none(labeldp, amounts, folder, text):
    code, _, err = labeldp(
        "train", "amounts.csv", "--label", "amount", "--range", text, "--epsilon", "1", "--out", "run"
    )
    assert code == 2
    assert "range" in err


def test_neither_classes_nor_range(labeldp, amounts):
    code, _, err = labeldp("train", "amounts.csv", "--label", "amount", "--epsilon", "1", "--out", "run")
    assert code == 2
    assert "a range for a numeric label. (--classes no,yes, or --range LOW,HIGH,STEP.)" in err


def test_whole_numbers_cannot_become_others(labeldp, amounts):
    wide = ("--label", "amount", "--range", "0,100,0.5", "--epsilon", "1", "--out", "noisy.parquet")
    code, _, err = labeldp("privatize", "whole.parquet", *wide)
    assert code == 2
    assert "holds whole numbers" in err
