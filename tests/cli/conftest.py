import sys

import numpy as np
import polars as pl
import pytest

PEOPLE = pl.DataFrame(
    {"age": np.arange(300) % 50, "job": ["a", "b", "c"] * 100, "income": ["low", "high", "low"] * 100}
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    PEOPLE.write_csv(tmp_path / "people.csv")
    PEOPLE.write_parquet(tmp_path / "people.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def labeldp(folder, monkeypatch, capsys):
    """Run a command in this process: exit code, output, errors."""
    from labeldp.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["labeldp", *map(str, words)])
        with pytest.raises(SystemExit) as done:
            main()
        captured = capsys.readouterr()
        return done.value.code or 0, captured.out, captured.err

    return run
