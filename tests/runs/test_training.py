import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import labeldp as ldp
from labeldp.data.files import TableFile
from labeldp.learn.predictor import load_predictor
from labeldp.privacy.vault import Ledger
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.report.card import FORMATS, card_of_run
from labeldp.runs.config import TrainConfig
from labeldp.runs.predict import predict as predict_run
from labeldp.runs.record import read_record
from labeldp.runs.training import train_to_folder as train_run

N = 2000
HERE = os.environ | {"PYTHONPATH": str(Path(ldp.__file__).parents[1])}  # for processes in other folders


def make_people(folder, name="people.parquet"):
    generator = np.random.default_rng(0)
    x = generator.normal(size=N)
    frame = pl.DataFrame(
        {
            "age": pl.Series(x).scatter([3], [None]),
            "job": np.where(x > 1, "chief", "clerk"),
            "city": pl.Series(["A", None] * (N // 2)),
            "rich": x + generator.normal(size=N) * 0.3 > 0,
        }
    )
    frame.write_csv(folder / name) if name.endswith(".csv") else frame.write_parquet(folder / name)
    return folder / name


@pytest.fixture
def people(tmp_path):
    return SecretTable.open(make_people(tmp_path), "rich", "false,true")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder that is only read."""
    folder = tmp_path_factory.mktemp("run")
    table = SecretTable.open(make_people(folder), "rich", "false,true")
    report = train_run(table, table.vault(1.0), TrainConfig(1.0, recipe="moments"), folder / "run")
    return table, folder / "run", report


def test_another_person_can_read_the_run_folder(trained):
    _, run, report = trained
    assert sorted(path.name for path in run.iterdir()) == [
        "card.html",
        "card.json",
        "card.md",
        "features.json",
        "ledger.json",
        "model",
        "run.json",
    ]
    assert report == read_record(run)
    assert report["guarantee"]["epsilon"] == report["spent"]["epsilon"] == report["epsilon"] == 1.0
    assert report["data"] == {"name": "people.parquet", "rows": N, "label": "rich"}
    assert report["space"]["classes"] == [False, True]
    assert report["recipe"] == "moments"
    value, low, high = report["score"]["accuracy"]
    assert low < value < high
    ledger = json.loads((run / "ledger.json").read_text())
    assert [(e["mechanism"], e["released"]) for e in ledger] == [
        ("LinearQuery", 1800),
        ("CorrectCount", 200),
        ("GroupHistogram", 200),
    ]
    assert json.loads((run / "features.json").read_text())["columns"] == ["age", "job", "city"]
    assert f"Accuracy {value:.1%}" in (run / "card.html").read_text()
    model = load_predictor(run / "model")
    assert model.guarantee.epsilon == 1.0


def test_nothing_in_the_run_folder_is_of_one_row(trained, tmp_path):
    _, run, _ = trained
    cards = {f"card.{form}" for form in FORMATS}
    largest = {path.name: path.stat().st_size for path in run.rglob("*") if path.is_file() and path.name not in cards}
    assert max(largest.values()) < N * 4, largest  # the rows' noisy labels alone would fill a byte each
    (tmp_path / "copy").mkdir()
    for name in ("run.json", "ledger.json"):  # a card is longer, but holds nothing that these small files do not
        shutil.copy(run / name, tmp_path / "copy")
    card = card_of_run(tmp_path / "copy")
    for form in FORMATS:
        assert (run / f"card.{form}").read_text(encoding="utf-8") == card.text(form)


def test_predictions_are_those_of_the_model_and_near_what_was_estimated(trained):
    table, run, report = trained
    predicted = predict_run(run, table.file.path)
    right = (predicted["prediction"] == pl.read_parquet(table.file.path)["rich"]).mean()
    assert right > 0.8
    assert abs(report["score"]["accuracy"][0] - right) < 0.15  # five deviations
    assert np.allclose(predicted["p(False)"] + predicted["p(True)"], 1)
    assert (predicted["prediction"] == (predicted["p(True)"] > 0.5)).all()


def test_a_run_can_be_moved_and_used_by_another_process(trained, tmp_path):
    table, run, _ = trained
    shutil.copytree(run, tmp_path / "moved")
    done = subprocess.run(
        [sys.executable, "-m", "labeldp", "predict", "moved", str(table.file.path)],
        cwd=tmp_path,
        env=HERE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == predict_run(run, table.file.path).write_csv()
    assert done.stderr == ""


def test_new_rows_may_hold_what_training_never_saw(trained, tmp_path):
    _, run, _ = trained
    pl.DataFrame({"city": ["Z"], "job": [None], "age": [0.1]}).write_csv(tmp_path / "new.csv")
    assert predict_run(run, tmp_path / "new.csv").height == 1
    everything_missing = {"extra": [1, 2], "city": [None, None], "job": [None, None], "age": [None, None]}
    pl.DataFrame(everything_missing).write_csv(tmp_path / "missing.csv")
    assert predict_run(run, tmp_path / "missing.csv").height == 2
    pl.DataFrame(everything_missing).write_parquet(tmp_path / "missing.parquet")
    assert predict_run(run, tmp_path / "missing.parquet").height == 2
    (tmp_path / "none.csv").write_text("age,job,city\n")
    assert predict_run(run, tmp_path / "none.csv").height == 0


def test_predictions_stand_beside_the_ids_of_their_rows(trained, tmp_path):
    _, run, _ = trained
    rows = {"city": ["A", "B"], "job": ["x", "y"], "age": [1.0, 2.0], "patient": ["007", "8"], "prediction": [1, 2]}
    pl.DataFrame(rows).write_csv(tmp_path / "new.csv")
    predictions = predict_run(run, tmp_path / "new.csv", ids="patient")
    assert predictions.columns[:2] == ["patient", "prediction"]
    assert predictions["patient"].to_list() == ["007", "8"]  # as they are written
    with pytest.raises(ldp.InputError, match="has no column 'ward'"):
        predict_run(run, tmp_path / "new.csv", ids="ward")
    with pytest.raises(ldp.InputError, match="the name of a column of predictions, 'prediction'"):
        predict_run(run, tmp_path / "new.csv", ids="prediction")


def test_bad_input_to_predict(trained, tmp_path):
    table, run, _ = trained
    pl.DataFrame({"age": [1.0], "job": ["x"]}).write_parquet(tmp_path / "short.parquet")
    with pytest.raises(ldp.InputError, match="lacks the column 'city'"):
        predict_run(run, tmp_path / "short.parquet")
    pl.DataFrame({"age": ["old"], "job": ["x"], "city": ["A"]}).write_parquet(tmp_path / "text.parquet")
    with pytest.raises(ldp.InputError, match="held numbers or dates in the training table"):
        predict_run(run, tmp_path / "text.parquet")
    with pytest.raises(ldp.InputError, match="There is no file"):
        predict_run(run, tmp_path / "absent.csv")
    with pytest.raises(ldp.InputError, match="not a run folder"):
        predict_run(tmp_path, table.file.path)


@pytest.mark.parametrize("text", [None, "", "nonsense", "[]", "{}", '{"kind": "table"}', "null"])
@pytest.mark.parametrize("name", ["features.json", "model/model.json", "model/arrays.npz"])
def test_a_damaged_file_is_one_sentence(trained, tmp_path, name, text):
    table, run, _ = trained
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    if text is not None:
        (tmp_path / "run" / name).write_text(text)
    with pytest.raises(ldp.InputError, match="damaged") as caught:
        predict_run(tmp_path / "run", table.file.path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "kind"), [("auto", "csv"), ("logistic", "csv"), ("trees", "csv"), ("mlp", "parquet"), ("linear", "csv")]
)
def test_every_model_can_be_trained_saved_and_used(tmp_path, model, kind):
    table = SecretTable.open(make_people(tmp_path, f"people.{kind}"), "rich", "false,true")
    config = TrainConfig(4.0, recipe="randres", model=model, epochs=1, device="cpu")
    config.check()
    report = train_run(table, table.vault(4.0), config, tmp_path / "run")
    assert report["guarantee"]["epsilon"] == 4.0
    assert predict_run(tmp_path / "run", table.file.path).height == N


def test_columns_can_be_embeddings(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 4))
    frame = pl.DataFrame(x, ["a", "b", "c", "d"]).with_columns(y=pl.Series((x[:, 0] > 0).astype(int)))
    for name in ("t.parquet", "t.csv"):
        frame.write_csv(tmp_path / name) if name.endswith("csv") else frame.write_parquet(tmp_path / name)
        table = SecretTable.open(tmp_path / name, "y", "0,1")
        config = TrainConfig(5.0, 1e-6, "moments", features="embeddings")
        train_run(table, table.vault(5.0, 1e-6), config, tmp_path / f"run of {name}")
        assert json.loads((tmp_path / f"run of {name}" / "features.json").read_text())["kind"] == "embeddings"
        predicted = predict_run(tmp_path / f"run of {name}", tmp_path / name)["prediction"]
        assert (predicted.cast(pl.Int64) == frame["y"]).mean() > 0.8


def test_row_ids_are_not_learnt_from(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=300)
    frame = pl.DataFrame({"id": np.arange(300), "x": x, "y": np.where(x > 0, "b", "a")})
    frame.write_csv(tmp_path / "t.csv")
    table = SecretTable.open(tmp_path / "t.csv", "y", "a,b", id_column="id")
    train_run(table, table.vault(5.0), TrainConfig(5.0, recipe="moments"), tmp_path / "run")
    frame.select("x").write_csv(tmp_path / "new.csv")
    assert predict_run(tmp_path / "run", tmp_path / "new.csv").height == 300


def test_numbers_in_a_csv_may_get_decimals_late_and_texts_stay_texts(tmp_path):
    lines = [f"{i},0{i % 3},{'True' if i % 2 else 'False'},{'b' if i % 2 else 'a'}" for i in range(300)]
    lines += ["1.5,A,True,a"]
    (tmp_path / "t.csv").write_text("n,zip,flag,y\n" + "\n".join(lines) + "\n")
    table = SecretTable.open(tmp_path / "t.csv", "y", "a,b")
    train_run(table, table.vault(50.0), TrainConfig(50.0, recipe="moments"), tmp_path / "run")
    whole = predict_run(tmp_path / "run", tmp_path / "t.csv")
    # Alone, these rows' zips look like numbers. They must be read as in the training.
    (tmp_path / "few.csv").write_text("n,zip,flag\n0,00,False\n1,01,True\n")
    assert_frame_equal(predict_run(tmp_path / "run", tmp_path / "few.csv"), whole.head(2))


def test_training_again_adds_up(people, tmp_path):
    train_run(people, people.vault(0.5, budget=2.0), TrainConfig(0.5, recipe="moments"), tmp_path / "a")
    report = train_run(people, people.vault(1.0), TrainConfig(1.0, recipe="moments"), tmp_path / "b")
    assert report["guarantee"]["epsilon"] == 1.0
    assert report["spent"]["epsilon"] == 1.5
    assert "epsilon 1.5 and delta 0 in all" in (tmp_path / "b" / "card.html").read_text()
    with pytest.raises(ldp.BudgetExceeded, match=r"epsilon 0\.5 and delta 0 left"):
        train_run(people, people.vault(1.0), TrainConfig(1.0, recipe="moments", seed=1), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_the_same_training_again_costs_nothing_and_gives_the_same(people, tmp_path):
    config = TrainConfig(1.0, recipe="moments")
    first, second = (train_run(people, people.vault(1.0), config, tmp_path / name) for name in "ab")
    assert first["spent"] == second["spent"]
    assert first["score"] == second["score"]
    path = people.file.path
    assert predict_run(tmp_path / "a", path).equals(predict_run(tmp_path / "b", path))


def test_too_few_rows_are_trained_on_and_not_scored(tmp_path):
    frame = pl.DataFrame({"x": np.arange(60) / 60, "y": ["a", "b"] * 30})
    frame.write_csv(tmp_path / "t.csv")
    table = SecretTable.open(tmp_path / "t.csv", "y", "a,b")
    assert train_run(table, table.vault(1.0), TrainConfig(1.0, recipe="moments"), tmp_path / "run")["score"] is None


def test_rows_without_a_label_are_learnt_about_and_not_scored(tmp_path):
    x = np.random.default_rng(0).normal(size=N)
    labels = [("b" if value > 0 else "a") if place % 2 else None for place, value in enumerate(x)]
    pl.DataFrame({"x": x, "y": labels}).write_csv(tmp_path / "t.csv")
    table = SecretTable.open(tmp_path / "t.csv", "y", "a,b", "public")
    report = train_run(table, table.vault(2.0), TrainConfig(2.0, recipe="moments"), tmp_path / "run")
    assert sum(each["rows"] for each in report["releases"]) < N / 2
    assert report["score"]["n_rows"] < 0.07 * N
    assert predict_run(tmp_path / "run", tmp_path / "t.csv").height == N


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "none such"}, "There is no recipe"),
        ({"options": {"none_such": 1}}, "has no option"),
        ({"recipe": "randres", "options": {"mixup": "x"}}, "must be a number, not 'x'"),
        ({"recipe": "randres", "options": {"mixup": -1}}, "must not be below zero"),
        ({"recipe": "randres", "options": {"mixup": float("nan")}}, "must not be below zero"),
        ({"recipe": "noise-cluster", "options": {"clusters": 2.5}}, "must be a whole number, not 2.5"),
        ({"recipe": "alibi", "options": {"noise": "pink"}}, "must be one of laplace, gaussian, not 'pink'"),
        ({"model": "resnet18"}, "no model 'resnet18' for tables"),
        ({"features": "sounds"}, '"images" or "pairs"'),
        ({"encoder": Path("e")}, "An encoder is for images"),
        ({"device": "abacus"}, "no device 'abacus'"),
    ],
)
def test_a_wrong_plan_is_one_sentence(changes, message):
    with pytest.raises(ldp.InputError, match=message):
        TrainConfig(1.0, **changes).check()


def test_numbers_fit_options_that_take_them():
    TrainConfig(1.0, recipe="randres", options={"mixup": 1}).check()
    TrainConfig(1.0, recipe="noise-cluster", options={"clusters": 3}).check()
    TrainConfig(1.0, recipe="lp-mst", options={"first_fraction": 0.6, "stages": 3}).check()


def test_the_label_column_is_never_parsed_by_the_learning_side(tmp_path, monkeypatch):
    requested, read = [], TableFile.batches
    monkeypatch.setattr(
        TableFile, "batches", lambda self, columns=None: requested.append(columns) or read(self, columns)
    )
    lines = [f"{i},{'0' if i < 150 else 'SECRET'}" for i in range(300)]
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    table = SecretTable.open(tmp_path / "t.csv", "y", "0,SECRET")
    vault = table.vault(1.0)
    assert requested == [["x", "y"]]
    requested.clear()
    train_run(table, vault, TrainConfig(1.0, recipe="moments"), tmp_path / "run")
    assert requested
    assert all(columns == ["x"] for columns in requested)


@pytest.mark.parametrize(
    "text",
    ["x,z,y\n" + "1,2,no\n" * 30 + "\n" + "2,2,yes\n" * 30, "x,z,y\r" + "1,2,no\r" * 30 + "2,2,yes\r" * 30],
    ids=["blank lines", "carriage returns"],
)
def test_lines_are_the_same_rows_for_labels_and_features(tmp_path, text):
    (tmp_path / "t.csv").write_bytes(text.encode())
    table = SecretTable.open(tmp_path / "t.csv", "y", "no,yes")
    assert (
        train_run(table, table.vault(1.0), TrainConfig(1.0, recipe="moments"), tmp_path / "run")["data"]["rows"] == 60
    )
    assert predict_run(tmp_path / "run", tmp_path / "t.csv").height == 60


def test_column_names_may_hold_quotes(tmp_path):
    header = '"say ""hi""",y\n'
    (tmp_path / "t.csv").write_text(header + "1,no\n2,yes\n" * 30)
    table = SecretTable.open(tmp_path / "t.csv", "y", "no,yes")
    assert table.feature_columns == ['say "hi"']
    train_run(table, table.vault(1.0), TrainConfig(1.0, recipe="moments"), tmp_path / "run")
    assert predict_run(tmp_path / "run", tmp_path / "t.csv").height == 60


def test_a_column_that_cannot_be_read_is_named_before_there_is_a_ledger(tmp_path):
    kind = pa.map_(pa.string(), pa.int64())
    columns = {"x": [1, 2], "tags": pa.array([[("a", 1)], []], kind), "y": ["no", "yes"]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = SecretTable.open(tmp_path / "t.parquet", "y", "no,yes", id_column="x")
    with pytest.raises(ldp.InputError, match="Column 'tags' holds map"):
        TrainConfig(1.0, recipe="moments").check(table.space, table)
    assert not table.default_ledger_path.exists()


def test_an_interrupted_training_leaves_nothing_and_goes_on_without_a_second_charge(people, tmp_path):
    words = ["train", people.file.path.name, "--label", "rich", "--classes", "false,true", "--epsilon", "1"]
    words += ["--recipe", "randres", "--model", "mlp", "--out", "run", "--json", "--device", "cpu"]
    command = [sys.executable, "-m", "labeldp", *words]
    running = subprocess.Popen(
        [*command, "--epochs", "100000"],
        cwd=tmp_path,
        env=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Not before the training has begun: Python loses an interrupt that reaches it in the middle of an import.
    while running.poll() is None and not any((tmp_path / ".run.checkpoints").glob("*.pt")):
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert out == ""
    assert err.startswith("labeldp: interrupted;")
    assert err.count("\n") == 1
    assert not [name for name in os.listdir(tmp_path) if "run" in name and name != ".run.checkpoints"]
    before = Ledger(people.default_ledger_path).entries()
    assert [e.details["mechanism"] for e in before] == ["RandomizedResponse"]
    done = subprocess.run(
        [*command, "--epochs", "1"], cwd=tmp_path, env=HERE, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["spent"]["epsilon"] == 1.0
    after = Ledger(people.default_ledger_path).entries()
    assert after[0].id == before[0].id
    assert sum(e.details["mechanism"] == "RandomizedResponse" for e in after) == 1


def test_texts_that_are_written_in_another_way_are_noted(trained, tmp_path):
    table, run, _ = trained
    frame, notes = pl.read_parquet(table.file.path).head(20), []
    predict_run(run, table.file.path, warn=notes.append)
    assert notes == []
    frame.with_columns(city=pl.lit("elsewhere")).write_csv(tmp_path / "new.csv")
    predict_run(run, tmp_path / "new.csv", warn=notes.append)
    assert [note.partition(":")[0] for note in notes] == ["No value of column 'city' occurred in training"]
