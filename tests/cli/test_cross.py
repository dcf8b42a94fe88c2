import json

import pytest

TRAIN = ("train", "people.parquet", "--label", "income", "--classes", "low,high", "--epsilon", "3", "--out", "run")


def test_named_crosses_are_in_the_model_and_the_card(labeldp, folder):
    code, _, err = labeldp(*TRAIN, "--delta", "1e-6", "--cross", '"age",job', "--json")
    assert code == 0, err
    report = json.loads((folder / "run" / "run.json").read_text())
    assert report["options"] == {"cross": "age,job"}
    assert [each["names"] for each in report["effects"]["shown"] if each["kind"] == "cross"] == [["age", "job"]]
    code, _, err = labeldp("card", "run")
    assert code == 0, err
    assert "Effects in the model" in (folder / "run" / "card.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cross", "age,town"), "no feature column 'town'"),
        (("--cross", "age,income"), "no feature column 'income'"),
        (("--cross", "age,age"), "must name two different columns"),
        (("--cross", "age"), "must name two different columns"),
        (("--cross", "age,job", "--cross", "job,age"), "named twice"),
        (("--cross", "age,job", "--recipe", "moments"), "for the recipes additive and auto, not moments"),
        (("--cross", "age,job", "--option", "cross=age,job"), "give all of them in one way"),
        (("--cross", "age,job", "--features", "embeddings"), "Crosses are for tables"),
    ],
)
def test_wrong_crosses_end_in_one_sentence_before_there_is_a_ledger(labeldp, folder, words, message):
    code, out, err = labeldp(*TRAIN, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not list(folder.glob("*.ledger"))
    assert not (folder / "run").exists()


def test_compare_gives_crosses_to_the_recipes_that_take_them(labeldp, folder):
    words = ("compare", "people.parquet", "--label", "income", "--classes", "low,high", "--labels-public")
    how = ("--epsilons", "2", "--delta", "1e-6", "--cross", "age,job")
    code, _, err = labeldp(*words, *how, "--recipes", "additive,moments", "--out", "cells")
    assert code == 0, err
    assert "crosses age,job" in (folder / "cells" / "comparison.json").read_text()
    code, _, err = labeldp(*words, *how, "--recipes", "moments", "--out", "others")
    assert code == 2
    assert "not moments" in err
    code, _, err = labeldp(*words, *how[:-1], "age,town", "--recipes", "additive", "--out", "others")
    assert code == 2
    assert "no feature column 'town'" in err
