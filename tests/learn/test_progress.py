import pytest

from labeldp.learn import progress
from labeldp.learn.progress import TrainingProgress, progress_bar


@pytest.fixture
def clock(monkeypatch):
    """Twenty seconds pass whenever somebody looks."""
    seconds = iter(range(0, 10**6, 20))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: float(next(seconds)))


@pytest.mark.parametrize(("on", "name"), [(True, "training"), ("first encoder", "first encoder")])
def test_a_log_gets_a_line_now_and_then(clock, capsys, on, name):
    with TrainingProgress(on, epochs=10, first_epoch=2, n_rows=100) as bar:
        for _ in range(8):
            bar.end_epoch(0.5)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert 1 < len(lines) < 8
    assert all(line.startswith(f"{name}: ") and "of 10 epochs, loss 0.500, about" in line for line in lines)
    assert lines[-1].split()[-3] != "0"  # the last epoch is reported by what comes after it


def test_what_is_left_is_worked_out_from_what_was_done_here(clock, capsys):
    """Of ten epochs five were done before; two more in 60 seconds leave three for 90."""
    lines = progress.LogLines("training", "epochs", 10, 5)
    lines.report(6)
    lines.report(6)
    lines.report(7)
    assert capsys.readouterr().err == "training: 7 of 10 epochs, about 90 s left\n"


@pytest.mark.parametrize(("on", "reported"), [(True, True), (False, False)])
def test_things_are_counted(clock, capsys, on, reported):
    with progress_bar(on, "teachers", 20) as done:
        for _ in range(20):
            done()
    err = capsys.readouterr().err
    assert ("teachers: 3 of 20 done, about 340 s left" in err) == reported
    assert bool(err) == reported


def test_nothing_is_said_within_a_minute(capsys):
    with TrainingProgress(True, epochs=3, first_epoch=0, n_rows=10) as bar:
        for _ in range(3):
            bar.end_epoch(1.0)
    assert capsys.readouterr().err == ""
