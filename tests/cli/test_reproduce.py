import json
import pickle

import numpy as np
import pytest


@pytest.fixture
def few(folder):
    """Four pictures a batch are enough to see the command at work."""
    batches = folder / "cifar-10-batches-py"
    batches.mkdir()
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        pixels = np.random.default_rng(0).integers(0, 256, (40, 3072), dtype=np.uint8)
        (batches / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": [i % 10 for i in range(40)]}))
    return folder


def test_a_trial_prints_a_table_and_says_what_was_not_run(labeldp, few):
    small = ("--device", "cpu", "--epochs", 1, "--model", "linear", "--epsilons", "8")
    code, out, _ = labeldp("reproduce", "ghazi-table-1", "--data", ".", "--work", "w", *small)
    assert code == 0
    assert "a trial" in out
    assert "not run" in out
    assert "94.7" in out
    code, out, _ = labeldp("reproduce", "ghazi-table-1", "--data", ".", "--work", "w", *small, "--json")
    lines = json.loads(out)["lines"]
    assert [line["seeds"] for line in lines if line["epsilon"] == 8] == [1, 1]
    assert (few / "w/trials/epochs 1 model linear/ghazi-table-1.jsonl").is_file()


def test_a_trial_with_other_settings_is_another_trial(labeldp, few):
    request = (
        "reproduce",
        "ghazi-table-1",
        "--data",
        ".",
        "--work",
        "w",
        "--device",
        "cpu",
        "--epsilons",
        "8",
        "--json",
    )
    accuracies = []
    for settings in (("--epochs", 1, "--model", "linear"), ("--epochs", 1, "--model", "linear", "--sample", 30)):
        _, out, _ = labeldp(*request, *settings)
        accuracies.append([line["seeds"] for line in json.loads(out)["lines"] if line["epsilon"] == 8])
    assert accuracies == [[1, 1], [1, 1]]
    code, _, err = labeldp(*request, "--epochs", 1, "--model", "nope")
    assert code == 2
    assert "nope" in err


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_trainings_tell_how_far_they_are(labeldp, few, monkeypatch, words):
    monkeypatch.setattr("labeldp.learn.progress._REPORT_INTERVAL", 0.0)
    small = ("--device", "cpu", "--epochs", 3, "--model", "linear", "--epsilons", "8", "--method", "LP-1ST")
    code, _, err = labeldp("reproduce", "ghazi-table-1", "--data", ".", "--work", "w", *small, *words)
    assert code == 0
    assert ("training: 1 of 3 epochs, loss" in err) == (not words)


def test_the_tables_are_listed(labeldp):
    code, out, _ = labeldp("reproduce", "list")
    assert code == 0
    assert "tang-table-9" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ghazi-table-7", "--data", "."), "no table 'ghazi-table-7'"),
        (("ghazi-table-1",), "--data FOLDER"),
        (("ghazi-table-1", "--data", "nowhere"), "nowhere"),
        (("ghazi-table-1", "--data", ".", "--method", "LP-9ST"), "no row 'LP-9ST'"),
        (("ghazi-table-1", "--data", ".", "--epsilons", "one"), "numbers separated by commas"),
        (("ghazi-table-1", "--data", ".", "--epsilons", "7"), "its epsilons are 1, 2, 3"),
    ],
)
def test_bad_requests_are_one_sentence(labeldp, folder, words, message):
    code, out, err = labeldp("reproduce", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not (folder / "reproductions").exists()
