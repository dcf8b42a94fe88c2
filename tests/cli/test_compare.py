import json
import shutil

import pytest

DATA = ("compare", "people.csv", "--label", "income", "--classes", "low,high", "--device", "cpu")
SMALL = (*DATA, "--out", "out", "--recipes", "moments", "--epsilons", "1,2", "--budget", "3")


def spent(labeldp):
    return json.loads(labeldp("ledger", "show", "people.csv", "--json")[1])["spent"]["epsilon"]


def test_a_table_a_plot_and_the_total_that_it_costs(labeldp, folder):
    code, out, err = labeldp(*SMALL)
    assert code == 0
    assert err == "All cells together cost each label at most epsilon 3 and delta 0.\n"
    assert "measured privately" in out
    assert "epsilon 2" in out
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "accuracy.png",
        "cells.jsonl",
        "comparison.json",
    ]
    assert len((folder / "out" / "cells.jsonl").read_text().splitlines()) == 2
    assert spent(labeldp) == 3


def test_json_is_all_that_is_printed(labeldp):
    code, out, _ = labeldp(*SMALL, "--json", "--delta", 1e-6, "--delta-budget", 2e-6)
    assert code == 0
    found = json.loads(out)
    assert found["total"] == {"epsilon": 3.0, "delta": 2e-6}
    assert [(cell["recipe"], cell["epsilon"]) for cell in found["cells"]] == [("moments", 1.0), ("moments", 2.0)]


def test_a_finished_cell_is_not_trained_again(labeldp, monkeypatch):
    from labeldp.runs import compare

    trained, really = [], compare.train_recipe
    monkeypatch.setattr(compare, "train_recipe", lambda *args, **more: trained.append(args[2]) or really(*args, **more))
    first = labeldp(*SMALL, "--epsilons", "1")[1]
    assert first
    assert len(trained) == 1
    labeldp(*SMALL, "--budget", 3)
    assert len(trained) == 2
    again = labeldp(*SMALL)
    assert again[0] == 0
    assert len(trained) == 2
    assert spent(labeldp) == 3


def test_an_interrupted_comparison_goes_on_within_the_same_budget(labeldp, folder, monkeypatch):
    from labeldp.runs import compare

    really = compare.train_recipe

    def interrupted(vault, task, *more, **settings):
        done = really(vault, task, *more, **settings)
        if task.epsilon == 2:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patched:
        patched.setattr(compare, "train_recipe", interrupted)
        code, out, err = labeldp(*SMALL)
        assert (code, out) == (130, "")
        assert "labeldp: interrupted" in err
    assert spent(labeldp) == 3
    assert len((folder / "out" / "cells.jsonl").read_text().splitlines()) == 1
    code, _, err = labeldp(*SMALL)
    assert code == 0, err
    assert spent(labeldp) == 3


def test_above_the_budget_it_is_refused_and_nothing_is_spent(labeldp, folder):
    code, out, err = labeldp(*SMALL, "--budget", 2)
    assert (code, out) == (2, "")
    assert "cost epsilon 3 and delta 0, and the budget has epsilon 2 and delta 0 left" in err
    assert "--labels-public" in err
    assert err.count("\n") == 1
    assert spent(labeldp) == 0
    assert not (folder / "out").exists()


def test_the_budget_of_the_data_set_counts_what_was_spent_before(labeldp):
    train = ("train", "people.csv", *DATA[2:6], "--recipe", "moments", "--epsilon", 1, "--out", "run", "--budget", 3)
    assert labeldp(*train)[0] == 0
    assert "has epsilon 2 and delta 0 left" in labeldp(*SMALL)[2]
    assert labeldp(*SMALL, "--epsilons", "2")[0] == 0


def test_public_labels_score_and_leave_no_ledger(labeldp, folder):
    code, out, err = labeldp(*SMALL, "--labels-public", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["total"] is None
    assert {cell["measured"] for cell in found["cells"]} == {"on true labels"}
    assert not list(folder.glob("*.ledger*"))
    shutil.copy("people.parquet", "test.parquet")
    code, out, _ = labeldp(*DATA, "--out", "other", "--recipes", "moments", "--labels-public", "--test", "test.parquet")
    assert code == 0
    assert "declared" in out


def test_a_folder_of_another_comparison_is_refused(labeldp):
    assert labeldp(*SMALL, "--labels-public")[0] == 0
    for more in ((), ("--labels-public", "--model", "trees"), ("--labels-public", "--delta", 1e-6)):
        code, out, err = labeldp(*SMALL, *more)
        assert (code, out) == (2, "")
        assert "out holds another comparison" in err


BAD = {
    "not a number": (["--out", "o", "--epsilons", "1,x"], "--epsilons must be numbers separated by commas"),
    "epsilon 0": (["--out", "o", "--epsilons", "0"], "epsilon must be a finite number above zero"),
    "no epsilon": (["--out", "o", "--epsilons", ""], "--epsilons must be numbers"),
    "no recipe": (["--out", "o", "--recipes", ","], "at least one epsilon, one recipe"),
    "unknown recipe": (["--out", "o", "--recipes", "moments,magic"], "There is no recipe 'magic'"),
    "unknown model": (["--out", "o", "--model", "oracle"], "There is no model 'oracle'"),
    "unknown features": (["--out", "o", "--features", "sounds"], '"images" or "pairs"'),
    "unknown criterion": (["--out", "o", "--choose-by", "recall"], "There is no criterion 'recall'"),
    "no seeds": (["--out", "o", "--seeds", 0], "Invalid value for '--seeds'"),
    "delta 1": (["--out", "o", "--delta", 1], "delta must be"),
    "a file as folder": (["--out", "people.parquet"], "people.parquet exists"),
    "no folder": (["--out", "absent/o"], "There is no folder absent"),
    "a test without public labels": (
        ["--out", "o", "--test", "people.csv"],
        "add --labels-public, or leave --test out",
    ),
    "no test": (["--out", "o", "--labels-public", "--test", "absent.csv"], "There is no file absent.csv"),
    "another test": (["--out", "o", "--labels-public", "--test", "other.csv"], "lacks the column 'age'"),
    "an empty test": (["--out", "o", "--labels-public", "--test", "empty.csv"], "has no rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(labeldp, folder, case):
    (folder / "other.csv").write_text("job,income\na,low\n")
    (folder / "empty.csv").write_text("age,job,income\n")
    words, expected = BAD[case]
    code, out, err = labeldp(*DATA, *words)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.startswith("labeldp: ")
    assert err.count("\n") == 1
    assert not (folder / "o").exists()
    assert not list(folder.glob("*.ledger"))


def test_a_total_must_be_allowed_before_anything_is_spent(labeldp, folder):
    code, out, err = labeldp(*DATA, "--out", "o", "--recipes", "moments", "--epsilons", "1,2", "--delta", 1e-6)
    assert (code, out) == (2, "")
    assert "--budget 3 --delta-budget 2e-06" in err
    assert not (folder / "people.csv.ledger").exists()


def test_labels_with_a_ledger_are_not_public(labeldp, folder):
    named = labeldp("train", *DATA[1:], "--epsilon", 1, "--recipe", "moments", "--ledger", "own.db", "--out", "run")
    assert named[0] == 0
    assert labeldp(*SMALL)[0] == 0
    public = (*SMALL[:8], "--out", "p", "--recipes", "moments", "--labels-public")
    code, _, err = labeldp(*public, "--ledger", "own.db")
    assert (code, "own.db records these labels as private" in err) == (2, True)
    assert labeldp(*public, "--ledger", "none.db")[0] == 2
    shutil.copy("people.csv", "others.csv")
    scored = ("compare", "others.csv", *DATA[2:], "--out", "p", "--recipes", "moments", "--labels-public")
    code, _, err = labeldp(*scored, "--test", "people.csv")
    assert (code, "people.csv.ledger records these labels as private" in err) == (2, True)
    code, _, err = labeldp(*public)
    assert code == 2
    assert "records these labels as private" in err


def test_a_model_is_for_the_recipes_that_take_one(labeldp, folder):
    words = (*DATA, "--out", "out", "--recipes", "moments,randres", "--epsilons", "1", "--budget", "2")
    assert labeldp(*words, "--model", "logistic")[0] == 0
    code, _, err = labeldp(*DATA, "--out", "other", "--recipes", "moments", "--epsilons", "1,a")
    assert (code, err) == (2, "labeldp: --epsilons must be numbers separated by commas, like 0.5,1,2.\n")


@pytest.mark.parametrize(
    ("recipe", "message"), [("pate-fm", "needs a delta above 0"), ("refine", "begins from an encoder")]
)
def test_a_recipe_that_lacks_something_is_refused_before_others_spend(labeldp, folder, recipe, message):
    before = set(folder.iterdir())
    code, _, err = labeldp(*SMALL[:-4], "--epsilons", "1", "--recipes", f"moments,{recipe}", "--budget", 9)
    assert (code, message in err) == (2, True)
    assert set(folder.iterdir()) == before


def test_a_recipe_for_numbers_is_refused_before_anything_is_spent(labeldp, folder):
    before = set(folder.iterdir())
    code, _, err = labeldp(*SMALL[:-4], "--epsilons", "1", "--recipes", "moments,bins")
    assert code == 2
    assert "'bins' learns numbers" in err
    assert set(folder.iterdir()) == before
