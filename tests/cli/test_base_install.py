"""The base install has no torch: what needs it says so, and the rest works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labeldp as ldp

# Runs commands in a process whose imports of what only the extra installs fail, and prints how each ended.
SCRIPT = """
import contextlib, io, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "safetensors", "PIL", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from labeldp.cli import main

ended = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["labeldp", *words]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main()
        except SystemExit as stop:
            ended.append([stop.code or 0, said.getvalue()])
        except BaseException as problem:
            ended.append([1, repr(problem)])
print(json.dumps(ended))
"""
LABELS = ["--label", "income", "--classes", "low,high"]
NEED_TORCH = [
    ["train", "people.csv", *LABELS, "--epsilon", "1", "--out", "o"],
    ["train", "people.csv", *LABELS, "--epsilon", "1", "--out", "o", "--recipe", "moments"],
    ["predict", "run", "people.csv"],
    ["encode", "people.parquet", "--out", "encoder"],
    ["compare", "people.csv", *LABELS, "--out", "o", "--budget", "100"],
    ["audit", "run", "people.csv"],
    ["reproduce", "ghazi-table-1", "--data", "."],
]
NEED_NONE = [
    ["--help"],
    ["privatize", "people.csv", *LABELS, "--epsilon", "1", "--out", "noisy.csv"],
    ["ledger", "show", "people.csv"],
    ["plan", "--rows", "1000", "--classes", "2", "--epsilon", "1"],
    ["plan", "--rows", "1000", "--range", "0,10,1", "--epsilon", "1"],
    ["account", "votes.npy", "--mechanism", "gnmax", "--sigma", "4"],
    ["audit", "--mechanism", "rr", "--epsilon", "1", "--draws", "1000"],
    ["reproduce", "list"],
    ["card", "run", "--no-open"],
]


@pytest.fixture
def ended(labeldp, folder):
    np.save("votes.npy", [[30, 12], [40, 2]])
    assert labeldp("train", "people.parquet", *LABELS, "--epsilon", 1, "--out", "run", "--recipe", "moments")[0] == 0

    def run(commands):
        words = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
        environment = os.environ | {"PYTHONPATH": str(Path(ldp.__file__).parents[1])}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


def test_what_needs_torch_names_the_extra(ended):
    for words, (code, said) in zip(NEED_TORCH, ended(NEED_TORCH), strict=True):
        assert (code, said.count("\n")) == (2, 1), (words, said)
        assert said.endswith("needs torch, which is not installed: pip install 'labeldp[learn]'.\n"), words
    assert not Path("people.csv.ledger").exists()


def test_the_rest_works_without_torch(ended):
    for words, (code, said) in zip(NEED_NONE, ended(NEED_NONE), strict=True):
        assert code == 0, (words, said)
