import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import labeldp as ldp
from labeldp.learn.short_training import is_shortened

LABELS = ("--label", "income", "--classes", "low,high")
TRAIN = ("train", "people.csv", *LABELS, "--epsilon", 1, "--out", "o")


def people():
    return pl.read_parquet("people.parquet")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_privatize(labeldp, folder, kind):
    code, out, _ = labeldp("privatize", f"people.{kind}", *LABELS, "--epsilon", 1, "--out", f"noisy.{kind}")
    assert code == 0
    assert "probability 0.731" in out
    assert "epsilon 1 of 1" in out
    read = pl.read_csv if kind == "csv" else pl.read_parquet
    noisy = read(folder / f"noisy.{kind}")
    assert noisy.drop("income").equals(people().drop("income"))
    unchanged_fraction = (noisy["income"] == people()["income"]).mean()
    assert 0.6 < unchanged_fraction < 0.86
    # The same request again: the same noise, no further cost.
    code, out, _ = labeldp("privatize", f"people.{kind}", *LABELS, "--epsilon", 1, "--out", f"again.{kind}", "--json")
    assert json.loads(out)["guarantee"]["epsilon"] == 1
    assert read(folder / f"again.{kind}").equals(noisy)


def test_the_guarantee_travels_with_a_parquet_file(labeldp, folder):
    import pyarrow.parquet as pq

    labeldp("privatize", "people.parquet", *LABELS, "--epsilon", 1, "--out", "noisy.parquet")
    meta = pq.read_schema(folder / "noisy.parquet").metadata
    assert json.loads(meta[b"labeldp.guarantee"])["epsilon"] == 1


def test_train_predict_and_ledger(labeldp, folder):
    code, out, err = labeldp("train", "people.csv", *LABELS, "--epsilon", 2, "--out", "run", "--recipe", "moments")
    assert (code, err) == (0, "")
    assert "measured privately on 30 held-out rows" in out
    assert "Each label has spent epsilon 2 of 2 so far" in out
    code, out, _ = labeldp("predict", "run", "people.csv")
    assert out.splitlines()[0] == "prediction,p(low),p(high)"
    assert len(out.splitlines()) == 301
    _, out, _ = labeldp("predict", "run", "people.csv", "--ids", "age")
    assert out.splitlines()[0] == "age,prediction,p(low),p(high)"
    for name in ("predicted.parquet", "predicted.csv"):
        code, out, err = labeldp("predict", "run", "people.parquet", "--out", name)
        assert (code, out) == (0, "")
        assert err == f"Wrote {name}: 300 rows.\n"
    assert pl.read_parquet(folder / "predicted.parquet").height == pl.read_csv(folder / "predicted.csv").height == 300
    code, out, _ = labeldp("ledger", "show", "people.csv")
    assert "LinearQuery" in out
    assert "GroupHistogram" in out
    assert "spent epsilon 2 " in " ".join(out.split())
    code, out, _ = labeldp("ledger", "show", "people.csv.ledger", "--json")
    assert json.loads(out)["spent"] == {"epsilon": 2.0, "delta": 0.0, "exact": True}


@pytest.mark.parametrize(
    "more",
    [
        ("--recipe", "auto", "--epochs", 1),
        ("--recipe", "moments", "--delta", 1e-6),
        ("--recipe", "randres", "--model", "logistic", "--option", "mixup=0"),
        ("--recipe", "noise-cluster", "--model", "linear", "--epochs", 1, "--option", "clusters=300"),
    ],
)
def test_json_is_all_that_is_printed(labeldp, more):
    code, out, err = labeldp(*TRAIN, *more, "--json", "--device", "cpu")
    assert code == 0
    assert all(line.startswith("Note: ") for line in err.splitlines())  # of few rows, the model may name one class
    report = json.loads(out)
    assert report["guarantee"]["epsilon"] == report["spent"]["epsilon"] == 1
    assert report == json.loads(Path("o/run.json").read_text())


def test_models_are_chosen_by_the_criterion_that_is_asked_for(labeldp, folder, monkeypatch):
    monkeypatch.setattr(
        "labeldp.recipes.pipelines.auto._MIN_SIGNAL_TO_CHOOSE", 0.0
    )  # it would average models of so few rows
    rows = np.random.default_rng(0).normal(size=(300, 2))
    pl.DataFrame(rows).with_columns(income=pl.Series(["low", "high", "low"] * 100)).write_csv("people.csv")
    code, out, _ = labeldp(*TRAIN, "--features", "embeddings", "--epsilon", 5, "--choose-by", "auc", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["settings"]["choose_by"] == "auc"
    assert [each.get("by") for each in report["releases"] if each["mechanism"] == "HighestScore"] == ["auc"]
    assert "a private selection on other rows chose one by AUC" in (folder / "o" / "card.md").read_text()


def test_training_again_adds_up_and_the_budget_holds(labeldp):
    train = ("train", "people.csv", *LABELS, "--recipe", "moments", "--epsilon")
    assert "epsilon 1 of 1.5" in labeldp(*train, 1, "--out", "a", "--budget", 1.5)[1]
    code, _, err = labeldp(*train, 1, "--out", "b", "--seed", 1)
    assert code == 2
    assert "has epsilon 0.5 and delta 0 left" in err
    assert "(--budget sets the total for this data set; --delta-budget sets the total delta.)" in err
    assert "epsilon 1.5 of 1.5" in labeldp(*train, 0.5, "--out", "b", "--seed", 1)[1]


def test_an_accuracy_that_was_not_measured_is_said_to_be_so(labeldp):
    people().head(50).write_csv("few.csv")
    _, out, _ = labeldp("train", "few.csv", *LABELS, "--epsilon", 1, "--out", "o", "--recipe", "moments")
    assert "too few rows or users for a held-out set" in out


BAD = {
    "no file": (["privatize", "absent.csv", *LABELS, "--epsilon", 1, "--out", "o.csv"], "There is no file"),
    "no column": (
        ["privatize", "people.csv", "--label", "x", "--classes", "a,b", "--epsilon", 1, "--out", "o.csv"],
        "no column 'x'",
    ),
    "outside": (
        ["privatize", "people.csv", "--label", "income", "--classes", "low,mid", "--epsilon", 1, "--out", "o.csv"],
        "outside the declared classes, first in row 1",
    ),
    "epsilon 0": (["privatize", "people.csv", *LABELS, "--epsilon", 0, "--out", "o.csv"], "epsilon must be"),
    "epsilon nan": (["train", "people.csv", *LABELS, "--epsilon", "nan", "--out", "o"], "epsilon must be"),
    "epsilon inf": (["train", "people.csv", *LABELS, "--epsilon", "inf", "--out", "o"], "epsilon must be"),
    "out exists": (["privatize", "people.csv", *LABELS, "--epsilon", 1, "--out", "people.parquet"], "exists"),
    "other format": (["privatize", "people.csv", *LABELS, "--epsilon", 1, "--out", "o.parquet"], "must end in .csv"),
    "no folder": (["train", "people.csv", *LABELS, "--epsilon", 1, "--out", "absent/run"], "no folder"),
    "no run": (["predict", "absent", "people.csv"], "not a run folder"),
    "no ledger": (["ledger", "show", "absent"], "no ledger"),
    "a folder": (["ledger", "show", "."], "is a folder"),
    "no ledger yet": (["ledger", "show", "people.csv"], "nothing has been spent on it yet"),
    "no such option": (["train", "people.csv", "--epsilonn", 1], "No such option"),
    "not a number": (["train", "people.csv", *LABELS, "--epsilon", "x", "--out", "o"], "Invalid value for '--epsilon'"),
    "no such command": (["trein"], "No such command"),
    "not a ledger": (
        ["train", "people.csv", *LABELS, "--epsilon", 1, "--out", "o", "--ledger", "people.parquet"],
        "not a ledger",
    ),
    "budget below": (
        ["privatize", "people.csv", *LABELS, "--epsilon", 2, "--budget", 1, "--out", "o.csv"],
        "--budget sets the total",
    ),
    "unknown criterion": ([*TRAIN, "--choose-by", "recall"], "no criterion 'recall': choose by one of auto, accuracy"),
    "unknown recipe": ([*TRAIN, "--recipe", "magic"], "There is no recipe 'magic': choose one of additive,"),
    "unknown option of a recipe": ([*TRAIN, "--option", "magic=1"], "has no option 'magic'"),
    "an option without a value": ([*TRAIN, "--option", "magic"], "write --option name=value"),
    "an option of another type": (
        [*TRAIN, "--recipe", "noise-cluster", "--option", "clusters=many"],
        "'clusters' must be a whole number, not 'many'",
    ),
    "an option below zero": ([*TRAIN, "--recipe", "randres", "--option", "mixup=-1"], "must not be below zero"),
    "unknown model": ([*TRAIN, "--model", "oracle"], "There is no model 'oracle'"),
    "a model for images": ([*TRAIN, "--model", "resnet18"], "choose auto, logistic, trees, mlp or linear"),
    "a model that the recipe cannot train": (
        [*TRAIN, "--recipe", "randres-ssl", "--model", "trees"],
        "trains networks",
    ),
    "unknown kind of features": ([*TRAIN, "--features", "sounds"], '"images" or "pairs"'),
    "embeddings of texts": ([*TRAIN, "--features", "embeddings"], "Embeddings must be numbers"),
    "unknown device": ([*TRAIN, "--device", "abacus"], "no device 'abacus'"),
    "epsilon below 0": (["train", "people.csv", *LABELS, "--epsilon", -1, "--out", "o"], "epsilon must be"),
    "delta 1": ([*TRAIN, "--delta", 1], "delta must be"),
    "delta nan": ([*TRAIN, "--delta", "nan"], "delta must be"),
    "budget 0": ([*TRAIN, "--budget", 0], "epsilon must be"),
    "budget of delta 1": ([*TRAIN, "--delta-budget", 1], "delta must be"),
    "delta without a budget for it": ([*TRAIN, "--delta", 1e-3, "--delta-budget", 1e-4], "delta"),
    "Gaussian noise without delta": ([*TRAIN, "--recipe", "alibi", "--option", "noise=gaussian"], "needs a delta"),
    "epochs 0": ([*TRAIN, "--epochs", 0], "Invalid value for '--epochs'"),
    "seed below 0": ([*TRAIN, "--seed", -1], "Invalid value for '--seed'"),
    "seed of 33 bits": ([*TRAIN, "--seed", 2**32], "Invalid value for '--seed'"),
    "one class": (
        ["train", "people.csv", "--label", "income", "--classes", "low", "--epsilon", 1, "--out", "o"],
        "at least two classes",
    ),
    "no classes": (
        ["train", "people.csv", "--label", "income", "--classes", "", "--epsilon", 1, "--out", "o"],
        "at least two classes",
    ),
    "a class twice": (
        ["train", "people.csv", "--label", "income", "--classes", "low,low", "--epsilon", 1, "--out", "o"],
        "each class once",
    ),
    "an undeclared class": (
        ["train", "people.csv", "--label", "income", "--classes", "low,mid", "--epsilon", 1, "--out", "o"],
        "outside the declared classes, first in row 1",
    ),
    "the label as ids": ([*TRAIN, "--ids", "income"], "cannot identify its own data set"),
    "no column of ids": ([*TRAIN, "--ids", "id"], "no column 'id'"),
    "train: out exists": (["train", "people.csv", *LABELS, "--epsilon", 1, "--out", "people.csv"], "exists"),
    "train: budget": ([*TRAIN, "--budget", 0.5], "This costs epsilon 1, and the budget shall be 0.5 in all"),
    "ledger is a folder": ([*TRAIN, "--ledger", "."], "is a folder"),
    "ledger without a folder": ([*TRAIN, "--ledger", "absent/l"], "no folder absent"),
    "a required option is missing": (["train", "people.csv"], "Missing option"),
    "predict: no file": (["predict", ".", "absent.csv"], "not a run folder"),
    "predict: other format": (["predict", ".", "people.csv", "--out", "o.txt"], "must end in .csv or .parquet"),
}
FILES = {
    "blank.csv": (b"", "is empty"),
    "header.csv": (b"age,income\n", "has no rows"),
    "ragged.csv": (b"age,income\n1,low\n2\n", "equally many fields in each line"),
    "binary.csv": (b"age,income\n\xff\xfe,low\n1,high\n" * 3, ""),
    "twice.csv": (b"age,age,income\n1,1,low\n2,2,high\n", "two columns of one name"),
    "only.csv": (b"income\nlow\nhigh\n", "no column but the label"),
    "gaps.csv": (b"age,income\n1,low\n2,\n", "A label is missing, first in row 1"),
    "text.parquet": (b"not Parquet", "must be a whole Parquet file"),
    "table.txt": (b"age,income\n1,low\n", "must be a .csv or a .parquet file"),
}


@pytest.mark.parametrize("command", ["train", "compare", "privatize"])
@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_one_sentence(labeldp, folder, name, command):
    content, expected = FILES[name]
    (folder / name).write_bytes(content)
    more = ("--budget", 99) if command == "compare" else ("--epsilon", 1)
    code, out, err = labeldp(command, name, *LABELS, *more, "--out", f"o{name[-4:]}")
    assert (code, out) == (2, "")
    assert expected in err
    assert err.startswith("labeldp: ")
    assert err.count("\n") == 1


def test_a_device_that_is_not_there_is_noticed_before_anything_is_spent(labeldp, folder, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, out, err = labeldp(*TRAIN, "--device", "cuda")
    assert (code, out) == (2, "")
    assert "There is no GPU that torch can use here" in err
    assert not list(folder.glob("*.ledger"))


MISSING = "This command needs torch, which is not installed: pip install 'labeldp[learn]'."


def test_a_library_that_is_not_installed_is_one_sentence(labeldp, monkeypatch):
    def missing(*_, **__):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("labeldp.privacy.vault.labeled_table.SecretTable.open", missing)
    code, out, err = labeldp(*TRAIN)
    assert (code, out, err) == (2, "", f"labeldp: {MISSING}\n")


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(labeldp, folder, case):
    before = {p.name for p in folder.iterdir()}
    words, expected = BAD[case]
    code, out, err = labeldp(*words)
    assert code == 2
    assert expected in err
    assert err.startswith("labeldp: ")
    assert err.count("\n") == 1
    assert out == ""
    assert not any(p.name.startswith((".", "o")) for p in folder.iterdir())
    left = {name for name in {p.name for p in folder.iterdir()} - before if "ledger" not in name}
    assert not left
    for path in folder.glob("*.ledger"):
        _, out, _ = labeldp("ledger", "show", path, "--json")
        assert json.loads(out)["spent"]["epsilon"] == 0


def test_a_missing_label_is_an_error_unless_declared_public(labeldp, folder):
    people().with_columns(income=pl.when(pl.col("age") == 3).then(None).otherwise("income")).write_csv("holes.csv")
    code, _, err = labeldp("privatize", "holes.csv", *LABELS, "--epsilon", 1, "--out", "o.csv")
    assert code == 2
    assert "A label is missing, first in row 3" in err
    code, _, _ = labeldp("privatize", "holes.csv", *LABELS, "--epsilon", 1, "--out", "o.csv", "--missing-public")
    assert code == 0
    assert pl.read_csv("o.csv")["income"].null_count() == 6


def test_an_interrupt_is_one_sentence_and_leaves_nothing(labeldp, folder, monkeypatch):
    from labeldp.data.files import TableFile

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableFile, "rewrite", interrupt)
    code, out, err = labeldp("privatize", "people.csv", *LABELS, "--epsilon", 1, "--out", "o.csv")
    assert (code, out) == (130, "")
    assert err.startswith("labeldp: interrupted")
    assert not (folder / "o.csv").exists()


def test_version_and_help(labeldp):
    import labeldp as package

    assert labeldp("--version")[1] == f"labeldp {package.__version__}\n"
    assert "privatize" in labeldp()[1]


HEAVY = {"numpy", "torch", "sklearn", "scipy", "pyarrow", "polars", "sqlalchemy", "matplotlib"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "--help"], ["compare", "--help"]])
def test_help_does_not_load_heavy_modules(words):
    code = (
        f"import sys; sys.argv = ['labeldp', *{words}]\nimport labeldp.cli\n"
        "try: labeldp.cli.main()\n"
        f"except SystemExit: print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr.strip() == "[]"


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "labeldp", "--help"], capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"}
    )
    assert done.returncode == 0
    assert "privatize" in done.stdout


@pytest.fixture
def digits_file(tmp_path):
    import io

    from PIL import Image
    from sklearn.datasets import load_digits

    pictures, labels = load_digits().images[:400], load_digits().target[:400] % 2
    files = []
    for picture in pictures:
        file = io.BytesIO()
        Image.fromarray((picture * 15.9).astype(np.uint8)).save(file, "PNG")
        files.append(file.getvalue())
    pl.DataFrame({"image": files, "odd": labels}).write_parquet(tmp_path / "digits.parquet")
    return "digits.parquet"


def test_images_in_a_column_are_trained_on_and_predicted(labeldp, digits_file):
    words = ("--label", "odd", "--classes", "0,1", "--epsilon", 8, "--features", "images", "--epochs", 2)
    recipe = ("--recipe", "randres", "--model", "cnn")
    code, out, err = labeldp("train", digits_file, *words, *recipe, "--out", "run")
    assert code == 0, err
    code, out, _ = labeldp("predict", "run", digits_file)
    assert code == 0
    assert len(out.splitlines()) == 401
    assert labeldp("train", "people.csv", *LABELS, "--epsilon", 1, "--features", "images", "--out", "r")[0] == 2


def test_encoders_of_pictures_are_trained_without_labels_and_trained_from(labeldp, digits_file, tmp_path):
    code, out, err = labeldp("encode", digits_file, "--model", "cnn", "--epochs", 1, "--out", "encoder")
    assert (code, out) == (0, "Wrote encoder: two encoders of 400 images. No label was read.\n"), err
    assert not list(tmp_path.glob(".*"))
    other = pl.read_parquet(digits_file).with_columns(odd=pl.lit("nobody's label"))
    other.write_parquet("other.parquet")
    assert labeldp("encode", "other.parquet", "--model", "cnn", "--epochs", 1, "--out", "again", "--json")[0] == 0
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("encoder", "again")]
    assert weights[0] == weights[1]
    words = ("--label", "odd", "--classes", "0,1", "--epsilon", 8, "--delta", 1e-5, "--features", "images")
    words = (*words, "--recipe", "refine", "--epochs", 1, "--model", "cnn", "--encoder", "encoder", "--out", "run")
    code, out, err = labeldp("train", digits_file, *words)
    assert code == 0, err
    assert [entry["mechanism"] for entry in json.loads(Path("run/ledger.json").read_text())][:1] == ["LinearQuery"]
    encoder = json.loads(Path("run/run.json").read_text())["encoder"]
    made = json.loads(Path("encoder/made.json").read_text())
    assert (made["digest"], made["data"], made["images"], made["flip"]) == (encoder, digits_file, 400, False)
    assert f"trained without labels, {encoder}" in Path("run/card.html").read_text()
    code, _, err = labeldp("audit", "run", digits_file, "--canaries", 20)
    assert (code, f"used encoder {encoder}: name it" in err) == (2, True)
    Path("digits.parquet.ledger").unlink()
    assert labeldp("train", "people.csv", *LABELS, "--epsilon", 1, "--recipe", "moments", "--out", "line")[0] == 0
    for changes, sentence in {
        ("--encoder", "run"): "run is a run: its model is run/model",
        ("--encoder", "run/model"): "This encoder was trained with labels",
        ("--encoder", "nowhere"): "There is no folder nowhere",
        ("--encoder", "line/model"): "contains no network: train an encoder, without labels. (--encoder FOLDER.)",
        ("--model", "resnet18"): "start from the encoder, which is a cnn, not a resnet18: do not choose a model",
    }.items():
        code, _, err = labeldp("train", digits_file, *words[:-1], "other", *changes)
        assert code == 2
        assert sentence in err
        assert not Path("digits.parquet.ledger").exists()  # a budget that nobody meant would stay


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("people.parquet", "--out", "e"), "Images need one column of picture files (PNG or JPEG as bytes)"),
        (("people.csv", "--out", "e"), "Images must be PNG or JPEG files in a column of a .parquet table"),
        (("two.parquet", "--out", "e"), "the table has 'front', 'back': leave out all but one. (--leave-out COLUMN.)"),
        (("nothing.parquet", "--out", "e"), "There is no file nothing.parquet"),
        (("people.csv", "--out", "people.csv"), "people.csv exists"),
        (("digits.parquet", "--out", "e", "--model", "vgg99"), "There is no network 'vgg99' for pictures: choose auto"),
        (("digits.parquet", "--out", "e", "--device", "abacus"), "no device 'abacus'"),
    ],
)
def test_what_cannot_be_encoded_is_said_in_one_sentence(labeldp, digits_file, tmp_path, words, sentence):
    pictures = pl.read_parquet(digits_file).to_series(0)
    pl.DataFrame({"front": pictures, "back": pictures}).write_parquet("two.parquet")
    before = set(tmp_path.rglob("*"))
    code, out, err = labeldp("encode", *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert set(tmp_path.rglob("*")) == before


def test_other_columns_beside_pictures_are_named(labeldp, digits_file):
    pl.read_parquet(digits_file).with_columns(age=30, back=pl.col("image")).write_parquet("more.parquet")
    words = ("--label", "odd", "--classes", "0,1", "--epsilon", 8, "--features", "images", "--epochs", 1)
    how = ("--recipe", "randres", "--model", "cnn", "--leave-out", "back", "--out", "run")
    code, _, err = labeldp("train", "more.parquet", *words, *how)
    assert (code, "The model uses images only: 'age' had no effect." in err) == (0, True)
    encode = ("encode", "more.parquet", "--model", "cnn", "--epochs", 1, "--out", "e")
    assert labeldp(*encode)[0] == 2
    assert labeldp(*encode, "--leave-out", "back")[0] == 0


@pytest.mark.parametrize("command", ["train", "privatize"])
def test_what_fails_after_a_release_says_that_it_is_not_lost(labeldp, folder, monkeypatch, command):
    def full(*_):
        if not is_shortened():  # a rehearsal would find it before the charge
            raise ldp.InputError("out cannot be written: No space left on device.")

    out = "run" if command == "train" else "noisy.csv"
    words = (command, "people.csv", *LABELS, "--epsilon", 1, "--out", out)
    with monkeypatch.context() as disk:
        disk.setattr("labeldp.runs.record.write_card", full)
        disk.setattr("labeldp.data.files.TableFile.rewrite", full)
        code, _, err = labeldp(*words)
    assert code == 2
    assert "No space left on device. What was released is paid for and in the ledger: the same request uses it" in err
    assert labeldp(*words)[0] == 0
    assert json.loads(labeldp("ledger", "show", "people.csv", "--json")[1])["spent"]["epsilon"] == 1


def test_what_is_in_the_way_of_checkpoints_is_said(labeldp, digits_file, tmp_path):
    (tmp_path / ".e.checkpoints").write_text("mine")
    code, _, err = labeldp("encode", digits_file, "--model", "cnn", "--epochs", 1, "--out", "e")
    assert code == 2
    assert "is not a folder, but checkpoints need this name" in err
    assert (tmp_path / ".e.checkpoints").read_text() == "mine"


def test_two_commands_do_not_make_the_same_folder(labeldp, digits_file, tmp_path):
    from filelock import FileLock

    (tmp_path / ".e.checkpoints").mkdir()
    with FileLock(tmp_path / ".e.checkpoints" / "lock"):
        code, _, err = labeldp("encode", digits_file, "--model", "cnn", "--epochs", 1, "--out", "e")
    assert code == 2
    assert "Another process is writing e" in err
    assert labeldp("encode", digits_file, "--model", "cnn", "--epochs", 1, "--out", "e")[0] == 0


def test_the_same_again_says_that_nothing_was_drawn(labeldp, folder):
    words = ("train", "people.csv", "--label", "income", "--classes", "low,high", "--recipe", "moments", "--epsilon", 1)
    assert "No noise was drawn" not in labeldp(*words, "--out", "first")[2]
    text = (folder / "people.csv").read_text()
    (folder / "people.csv").write_text(text.replace(",low", ",x").replace(",high", ",low").replace(",x", ",high"))
    code, _, err = labeldp(*words, "--out", "second")
    assert code == 0
    assert "No noise was drawn: the ledger already has these releases" in err


def test_who_is_refused_and_follows_the_advice_is_not_refused_again(labeldp, folder):
    words = ("train", "people.csv", "--label", "income", "--classes", "low,high", "--out", "run")
    code, _, err = labeldp(*words, "--recipe", "stable-vote", "--epsilon", 0.1, "--delta", 1e-5)
    assert (code, "raise epsilon" in err) == (2, True)
    assert labeldp(*words, "--recipe", "moments", "--epsilon", 1, "--ids", "age")[0] == 0


def test_so_large_an_epsilon_is_no_error(labeldp, folder):
    import polars as pl

    pl.DataFrame({"x": range(50), "score": [i % 10 for i in range(50)]}).write_csv(folder / "big.csv")
    words = ("privatize", "big.csv", "--label", "score", "--range", "0,10,1", "--out", "out.csv")
    code, out, _ = labeldp(*words, "--epsilon", 1e6)
    assert code == 0
    assert "noise of standard deviation" in out
