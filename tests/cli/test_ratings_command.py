import json

import polars as pl
import pytest
from rated import ratings

TRAIN = ("--label", "rating", "--classes", "1,2,3,4,5", "--features", "pairs", "--epsilon", 2, "--epochs", 2)


@pytest.fixture
def rated(folder):
    frame = ratings(n_rows=600).with_columns(user="u" + pl.col("user").cast(pl.String).str.zfill(3))
    frame.write_csv(folder / "ratings.csv")
    frame.write_parquet(folder / "ratings.parquet")
    frame.with_columns(when=0).write_csv(folder / "timed.csv")
    return frame


@pytest.mark.parametrize(("kind", "model"), [("csv", "ncf"), ("parquet", "mf")])
def test_train_predict_and_audit(labeldp, rated, folder, kind, model):
    data = f"ratings.{kind}"
    code, out, err = labeldp("train", data, *TRAIN, "--model", model, "--recipe", "lp-mst", "--out", "run")
    assert (code, err) == (0, "")
    assert "Each label has spent epsilon 2 of 2 so far" in out
    facts = json.loads((folder / "run" / "run.json").read_text())
    assert [release["mechanism"] for release in facts["releases"]] == ["RandomizedResponse", "RROnBins"]
    pl.DataFrame({"user": ["u003", "nobody"], "item": [1, 999]}).write_csv(folder / "new.csv")
    code, out, _ = labeldp("predict", "run", "new.csv")
    assert out.splitlines()[0] == "prediction,expected,p(1),p(2),p(3),p(4),p(5)"
    for line in out.splitlines()[1:]:
        _, expected, *probabilities = map(float, line.split(","))
        assert expected == pytest.approx(sum((i + 1) * p for i, p in enumerate(probabilities)), abs=1e-4)
    code, out, err = labeldp("audit", "run", data, "--canaries", 20)
    assert (code, err) == (0, "")


def test_auto_takes_pairs(labeldp, rated):
    code, out, _ = labeldp("train", "ratings.csv", *TRAIN, "--out", "run", "--json")
    assert code == 0
    assert json.loads(out)["releases"][1]["mechanism"] == "RROnBins"


@pytest.mark.parametrize(
    ("data", "more", "message"),
    [
        ("timed.csv", (), "two columns of ids, and here are 3 (user, item, when)"),
        ("ratings.csv", ("--model", "mlp"), "There is no model 'mlp' for pairs"),
        ("ratings.csv", ("--recipe", "lp-mst", "--option", "mixup=2"), "A mixture of two ids is nobody"),
        ("ratings.csv", ("--recipe", "moments"), "cannot be added up or clustered"),
    ],
)
def test_bad_requests_cost_nothing(labeldp, rated, folder, data, more, message):
    code, out, err = labeldp("train", data, *TRAIN, *more, "--out", "run")
    assert (code, out) == (2, "")
    assert message in err
    assert not (folder / "run").exists()
    code, out, _ = labeldp("ledger", "show", data)
    assert "RandomizedResponse" not in out


def test_compare_takes_pairs(labeldp, rated):
    words = ("--epsilons", "2", "--recipes", "lp-mst", "--labels-public", "--out", "o")
    code, out, err = labeldp("compare", "ratings.csv", *TRAIN[:6], *words)
    assert code == 0, err
    assert "lp-mst" in out


@pytest.mark.parametrize("owner", ["user", "household"])
def test_the_person_of_a_pair_can_be_the_user_who_is_protected(labeldp, rated, folder, owner):
    if owner == "household":
        rated.with_columns(household=pl.col("user").str.slice(0, 3)).write_csv(folder / "ratings.csv")
    words = ("--user-column", owner, "--labels-per-user", 4, "--recipe", "lp-mst", "--out", "run", "--json")
    code, out, err = labeldp("train", "ratings.csv", *TRAIN, *words)
    assert code == 0, err
    facts = json.loads(out)
    assert facts["guarantee"]["unit"] == "user"
    assert facts["guarantee"]["epsilon"] <= 2
    assert facts["users"]["labels_per_user"] == 4
    assert [release["mechanism"] for release in facts["releases"]] == ["RandomizedResponse", "RROnBins"]
    pl.DataFrame({"user": ["u003"], "item": [1]}).write_csv(folder / "new.csv")
    assert labeldp("predict", "run", "new.csv")[0] == 0
