import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SETTING = ("--rows", 50000, "--classes", 10, "--epsilon", 0.5)


@pytest.fixture
def plan(monkeypatch, capsys):
    """Run `labeldp plan` in this process: exit code, output, errors."""
    from labeldp.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["labeldp", "plan", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as done:
            main()
        captured = capsys.readouterr()
        return done.value.code or 0, captured.out, captured.err

    return run


def test_the_table(plan):
    code, out, err = plan(*SETTING, "--delta", 1e-5, "--features", "images", "--device", "cuda")
    assert (code, err) == (0, "")
    assert "Recommended: refine." in out
    assert "15.5%" in out


def test_json(plan):
    code, out, _ = plan(*SETTING, "--features", "embeddings", "--clusters", 20, "--purity", 0.8, "--json")
    advice = json.loads(out)
    assert code == 0
    assert advice["recommended"] == "log-linear"
    assert advice["setting"]["n_clusters"] == 20
    assert advice["setting"]["purity"] == 0.8


def test_repeated_releases_are_counted(plan):
    code, out, _ = plan("--rows", 48842, "--classes", 2, "--epsilon", 1, "--delta", 1e-5)
    assert code == 0
    assert "Recommended: additive." in out
    words = " ".join(out.split())
    assert "LinearQuery(0.657, 1e-05) + 4*LargestResiduals(0.0164) + 4*LinearQuery(0.329, 1e-05)" in words
    assert "their epsilons add up to more than the total" in words
    _, alone, _ = plan("--rows", 48842, "--classes", 2, "--epsilon", 1)
    assert "their epsilons add up" not in " ".join(alone.split())


def test_rare_positives(plan):
    code, out, _ = plan("--rows", 20000, "--classes", 2, "--epsilon", 1, "--positives", 0.01)
    assert code == 0
    assert "20,000 rows, 2 classes (0.01 positive)" in out
    assert "99.0% is what always saying no gets" in " ".join(out.split())
    _, out, _ = plan("--rows", 20000, "--classes", 2, "--epsilon", 1, "--positives", 0.01, "--json")
    assert json.loads(out)["setting"]["positives"] == 0.01


BAD = {
    "many positives": (("--rows", 10, "--classes", 2, "--epsilon", 1, "--positives", 0.6), "positives is the share"),
    "positives of ten": ((*SETTING, "--positives", 0.1), "positives is the share"),
    "no rows": (("--rows", 0, "--classes", 10, "--epsilon", 1), "rows must be a whole number from 1"),
    "one class": (("--rows", 10, "--classes", 1, "--epsilon", 1), "classes must be a whole number from 2"),
    "epsilon 0": (("--rows", 10, "--classes", 2, "--epsilon", 0), "epsilon must be"),
    "delta 2": ((*SETTING, "--delta", 2), "delta must be"),
    "features": ((*SETTING, "--features", "sounds"), "features must be one of table, embeddings, images"),
    "device": ((*SETTING, "--device", "tpu"), "device must be cpu or cuda"),
    "purity": ((*SETTING, "--purity", 0.05), "purity must be above 0.1"),
    "missing": (("--rows", 10), "Missing option"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(plan, case):
    words, expected = BAD[case]
    code, out, err = plan(*words)
    assert code == 2
    assert out == ""
    assert expected in err
    assert len(err.strip().splitlines()) == 1


def test_planning_needs_no_torch():
    script = "import sys, labeldp.cli.plan as p; p.plan(1000, 1.0, 2); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60).returncode == 0


def test_the_guide_shows_what_the_command_prints(plan):
    guide = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text()
    shown = re.findall(r"^    labeldp plan ([^\n]*)\n\n```\n(.*?)\n```", guide, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for words, table in shown:
        _, out, _ = plan(*words.split())
        assert [line.rstrip() for line in out.rstrip().splitlines()] == table.splitlines()


def test_numbers(plan):
    code, out, err = plan("--rows", 1000, "--range", "0,100,1", "--epsilon", 1)
    assert (code, err) == (0, "")
    assert "a number of RROnBins         26.7 " in out  # the root of 713.9, as docs/numbers.md has it
    assert "Recommended: auto" in out
    code, out, _ = plan("--rows", 1000, "--range", "0,100,1", "--epsilon", 1, "--json")
    assert json.loads(out)["RROnBins"] < json.loads(out)["guess"] < json.loads(out)["DiscreteLaplace"]


@pytest.mark.parametrize(
    "words", [(), ("--classes", 2, "--range", "0,1,1"), ("--range", "0,1"), ("--range", "0,9999,1")]
)
def test_what_a_label_may_be_is_said_once(plan, words):
    code, out, err = plan("--rows", 1000, "--epsilon", 1, *words)
    assert (code, out) == (2, "")
    assert "range" in err


@pytest.mark.parametrize(
    "words",
    [("--delta", 1e-3), ("--features", "images"), ("--device", "abacus"), ("--clusters", 3), ("--positives", 0.3)],
)
def test_what_says_nothing_about_numbers_is_refused(plan, words):
    code, out, err = plan("--rows", 1000, "--range", "0,100,1", "--epsilon", 1, *words)
    assert (code, out) == (2, "")
    assert f"does not use {words[0]}: leave it out." in err
