"""What fails after a charge is one sentence that says so, and the next run uses what was paid for."""

import pytest

import labeldp as ldp
from labeldp.learn.ridge import Ridge
from labeldp.learn.short_training import is_shortened

REQUEST = ["train", "people.parquet", "--label", "income", "--classes", "low,high", "--epsilon", "1", "--out", "run"]
MOMENTS = [*REQUEST, "--recipe", "moments"]
SPENT = ["ledger", "show", "people.parquet", "--json"]
PAID = "What was released is paid for and in the ledger: the same request uses it at no further cost."


@pytest.fixture
def failing_once(monkeypatch):
    """Let a learner fail once, after the rehearsal."""

    def put(problem):
        fit, failed = Ridge.fit, []

        def tried(self, *given):
            if not is_shortened() and not failed:
                failed.append(True)
                raise problem
            return fit(self, *given)

        monkeypatch.setattr(Ridge, "fit", tried)

    return put


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (IndexError("index 7 of the labels"), 1, "an unexpected IndexError ended this command."),
        (ldp.InputError("Rows are missing."), 2, "Rows are missing."),
        (ldp.LedgerError("The ledger is locked."), 2, "The ledger is locked."),
    ],
)
def test_a_failure_after_a_charge_says_that_the_next_run_is_free(labeldp, folder, failing_once, problem, code, message):
    failing_once(problem)
    failed = labeldp(*MOMENTS)
    assert failed[0] == code
    assert failed[2].startswith(f"labeldp: {message} {PAID}")
    assert failed[2].count("\n") == 1
    assert "index 7" not in failed[2]
    assert not (folder / "run").exists()
    spent = labeldp(*SPENT)[1]
    assert '"epsilon": 1.0' in spent
    done = labeldp(*MOMENTS)
    assert done[0] == 0, done[2]
    # The second run released the score, for other rows, and nothing else.
    assert "Each label has spent epsilon 1 of 1 so far" in done[1]


def test_a_failure_before_any_charge_says_nothing_of_one(labeldp, monkeypatch):
    def fail(*given, **more):
        raise IndexError

    monkeypatch.setattr("labeldp.runs.config.TrainConfig.read", fail)
    code, _, err = labeldp(*MOMENTS)
    assert (code, "unexpected IndexError" in err, "paid for" in err) == (1, True, False)


def test_a_traceback_is_shown_on_request(labeldp, failing_once, monkeypatch):
    monkeypatch.setenv("LABELDP_TRACEBACK", "1")
    failing_once(IndexError("index 7 of the labels"))
    code, _, err = labeldp(*MOMENTS)
    assert code == 1
    assert "Traceback" in err
    assert "index 7 of the labels" in err


def test_a_candidate_that_is_left_out_is_a_note(labeldp, folder, monkeypatch):
    from labeldp.learn.boosting import Boosting

    fit = Boosting.fit_averaged

    def tried(self, *given):
        if not is_shortened():
            raise IndexError("index 7 of the labels")
        return fit(self, *given)

    monkeypatch.setattr(Boosting, "fit_averaged", tried)
    code, _, err = labeldp(*[word.replace("1", "50") for word in REQUEST])
    note = "A candidate was left out: boosted trees could not be trained (IndexError)."
    assert (code, f"Note: {note}" in err) == (0, True)
    assert note in (folder / "run" / "run.json").read_text()
    assert note in (folder / "run" / "card.md").read_text()


def test_what_a_run_folder_cannot_hold_is_refused_before_the_charge(labeldp, monkeypatch):
    def fail(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labeldp.runs.record.write_card", fail)
    code, _, err = labeldp(*MOMENTS)
    assert (code, "ended in OSError. Nothing was spent" in err) == (2, True)
    assert "releases" not in labeldp("ledger", "show", "people.parquet")[1]
