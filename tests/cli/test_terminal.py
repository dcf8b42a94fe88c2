import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import labeldp
from labeldp.cli.terminal import StatusDisplay


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def screen(terminal=True):
    file, clock = io.StringIO(), Clock()
    console = Console(file=file, force_terminal=terminal, width=100)
    return StatusDisplay(console, clock), file, clock


def shown_text(file):
    """Return what is on the screen, without its control codes."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    file.seek(0)
    file.truncate()
    return text


def erased(file):
    """Whether the last line of the bar was erased, and the cursor is back."""
    after = file.getvalue().rpartition(" steps")[2]
    return "\x1b[2K" in after and "\x1b[?25h" in after


def test_the_share_of_steps_and_the_remaining_time_are_shown():
    steps, file, clock = screen()
    with steps:
        steps.show_progress(0, 4)
        text = shown_text(file)
        assert "0% of 4 steps" in text
        assert "left" not in text  # nobody knows yet
        clock.now += 30
        steps.show_progress(1, 4)
        assert "25% of 4 steps, about 2 min left" in shown_text(file)  # 90 seconds
        clock.now += 10
        steps.show_progress(2, 4)
        assert "50% of 4 steps, about 40 s left" in shown_text(file)
        steps.show_status("releasing")
        assert "releasing ..." in shown_text(file)
        clock.now += 8
        steps.show_progress(3, 4)
        assert "75% of 4 steps, about 16 s left" in shown_text(file)
        steps.show_progress(4, 4)
        assert erased(file)
        assert steps._bar is None


def test_a_bar_goes_where_a_training_ends_early():
    steps, file, _ = screen()

    def interrupted():
        with steps:
            steps.show_progress(1, 3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps._bar is None
    assert erased(file)


def test_long_times_are_written_in_minutes_and_hours():
    steps, file, clock = screen()
    with steps:
        steps.show_progress(0, 2)
        clock.now += 7200
        steps.show_progress(1, 2)
        assert "about 2.0 h left" in shown_text(file)


def test_nothing_is_shown_where_the_output_goes_elsewhere():
    steps, file, _ = screen(terminal=False)
    with steps:
        steps.show_status("training")
        steps.show_progress(0, 4)
        steps.show_progress(1, 4)
    assert file.getvalue() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_training_on_a_terminal_shows_its_steps(folder):
    import pty

    words = ("train", "people.parquet", "--label", "income", "--classes", "low,high", "--epsilon", "3", "--out", "run")
    how = ("--recipe", "additive", "--option", "crosses=1", "--delta", "1e-6")
    here, there = pty.openpty()
    command = [sys.executable, "-m", "labeldp", *words, *how]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": str(Path(labeldp.__file__).parents[1])}
    process = subprocess.Popen(command, stderr=there, stdout=subprocess.PIPE, env=environment, cwd=folder)
    os.close(there)
    shown = b""
    while True:
        try:
            part = os.read(here, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not part:
            break
        shown += part
    out, _ = process.communicate(timeout=60)
    os.close(here)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert process.returncode == 0, text
    assert "Wrote run" in out.decode()
    assert "0% of 2 steps" in text
    assert re.search(r"50% of 2 steps, about \d+ s left", text)
    assert text.index("rehearsing ...") < text.index("0% of 2 steps") < text.index("scoring ...")
