import json
import subprocess
import sys

import numpy as np
import pytest

VOTES = np.random.default_rng(0).multinomial(250, [0.82] + [0.02] * 9, 300).astype(float)
CONFIDENT = ("--mechanism", "confident-gnmax", "--threshold", 200, "--sigma1", 150, "--sigma2", 40)
GNMAX = ("--mechanism", "gnmax", "--sigma", 40)


@pytest.fixture
def votes(folder):
    np.save(folder / "votes.npy", VOTES)
    np.save(folder / "flat.npy", VOTES[0])
    np.savez(folder / "several.npz", a=VOTES, b=VOTES)
    (folder / "text.npy").write_text("no votes")
    np.save(folder / "halves.npy", VOTES + 0.5)
    return folder


def test_json(labeldp, votes):
    code, out, err = labeldp("account", "votes.npy", *CONFIDENT, "--answers", 50, "--conversion", "classic", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["answers"] == 50
    assert 50 < result["queries"] < 150
    assert 0 < result["epsilon_data_dependent"] < result["epsilon_data_independent"]
    assert result["publishable"] == []  # where 50 answers are reached is in the votes
    assert "epsilon_sanitized" not in result
    tight = json.loads(labeldp("account", "votes.npy", *CONFIDENT, "--answers", 50, "--json")[1])
    assert tight["epsilon_data_dependent"] < result["epsilon_data_dependent"]


@pytest.mark.parametrize(
    "words", [CONFIDENT, ("--mechanism", "gnmax", "--sigma", 40), ("--mechanism", "lnmax", "--scale", 20)]
)
def test_a_figure_to_publish(labeldp, votes, words):
    code, out, _ = labeldp("account", "votes.npy", *words, "--queries", 100, "--sanitize", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["queries"] == 100
    assert result["epsilon_sanitized"] > result["epsilon_data_dependent"]
    assert result["publishable"] == ["epsilon_sanitized"]  # any other figure would have to cover this one, too


def test_words_say_what_must_not_be_published(labeldp, votes):
    code, out, _ = labeldp("account", "votes.npy", "--mechanism", "gnmax", "--sigma", 40, "--sanitize", "--order", 9)
    assert code == 0
    assert "300 queries, 300.0 answers expected" in out
    for name in ("epsilon_data_dependent", "epsilon_data_independent", "epsilon_sanitized", "do not publish"):
        assert name in out
    assert "not beside the next figure" in out


def test_words_say_so_also_where_votes_set_the_caps(labeldp, votes):
    assert labeldp("account", "votes.npy", *CONFIDENT)[1].count("do not publish") == 2
    assert labeldp("account", "votes.npy", *GNMAX)[1].count("do not publish") == 1


BAD = {
    "a cap by votes": (("votes.npy", *GNMAX, "--answers", 5, "--sanitize"), "leave --answers out"),
    "no file": (("none.npy", *GNMAX), "There is no file none.npy"),
    "a folder": ((".", *GNMAX), "not a .npy file"),
    "text": (("text.npy", *GNMAX), "not a .npy file"),
    "several": (("several.npz", *GNMAX), "holds several arrays"),
    "flat": (("flat.npy", *GNMAX), "Votes must be whole numbers"),
    "halves": (("halves.npy", *GNMAX), "Votes must be whole numbers"),
    "mechanism": (("votes.npy", "--mechanism", "median"), "must be one of lnmax, gnmax, confident-gnmax"),
    "missing": (("votes.npy", "--mechanism", "confident-gnmax", "--sigma1", 3), "needs --threshold and --sigma2"),
    "spare": (("votes.npy", *GNMAX, "--scale", 3), "takes no --scale"),
    "sigma": (("votes.npy", "--mechanism", "gnmax", "--sigma", -1), "sigma must be"),
    "delta": (("votes.npy", *GNMAX, "--delta", 0), "delta must be"),
    "queries": (("votes.npy", *GNMAX, "--queries", 301), "from 1 to the 300"),
    "both": (("votes.npy", *GNMAX, "--queries", 3, "--answers", 3), "not at both"),
    "answers": (("votes.npy", *CONFIDENT, "--answers", 300), "fewer than 300 expected answers"),
    "conversion": (("votes.npy", *GNMAX, "--conversion", "loose"), "classic or tight"),
    "order alone": (("votes.npy", *GNMAX, "--order", 9), "add --sanitize"),
    "order": (("votes.npy", *GNMAX, "--sanitize", "--order", 1), "order must be"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(labeldp, votes, case):
    words, expected = BAD[case]
    code, out, err = labeldp("account", *words)
    assert code == 2
    assert out == ""
    assert expected in err
    assert len(err.strip().splitlines()) == 1


def test_nothing_heavy_is_loaded_for_help():
    script = "import sys, labeldp.cli.account_votes; assert not {'numpy', 'scipy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60).returncode == 0
