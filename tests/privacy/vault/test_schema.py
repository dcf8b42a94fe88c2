import sqlite3
import sys

import polars as pl
import pytest
from bound_vault import RR, open_vault

import labeldp as ldp
from labeldp.privacy.vault import Ledger
from labeldp.report.ledger import read_ledger_report

FORMAT_2_TABLES = (
    "CREATE TABLE labeldp_dataset (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE labeldp_entries (number INTEGER PRIMARY KEY, id TEXT, kind TEXT, status TEXT, request TEXT, "
    "details TEXT, costs TEXT, rows BLOB, created TEXT, finished TEXT)",
    "CREATE TABLE labeldp_payloads (entry TEXT, part INTEGER, data BLOB, PRIMARY KEY (entry, part))",
    "INSERT INTO labeldp_dataset VALUES ('format', '2')",
)


def execute(path, *statements):
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


def make_format(number, path):
    """Set the format of a ledger that the present code wrote, or make the tables of format 2."""
    if number == 2:
        path.unlink(missing_ok=True)
        execute(path, *FORMAT_2_TABLES)
    else:
        execute(path, f"UPDATE labeldp_head SET format = {number}")


def message(path, number):
    return (
        f"{path} has ledger format {number}, and this version of labeldp writes format 4, in which requests have other "
        "names: use the version that wrote it for these labels. A repeated request would otherwise draw new noise."
    )


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("read", [open_vault, read_ledger_report, lambda path: Ledger(path).entries()])
def test_a_ledger_of_another_format_is_refused_and_unchanged(path, number, read):
    open_vault(path).release(RR(0.5))
    make_format(number, path)
    path.with_name("people.ledger.lock").unlink(missing_ok=True)
    before = path.read_bytes()
    with pytest.raises(ldp.LedgerError) as refusal:
        read(path)
    assert str(refusal.value) == message(path, number)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["people.ledger"]


def test_an_open_vault_refuses_a_ledger_that_another_version_replaced(path):
    vault, older = open_vault(path), path.with_name("older.ledger")
    open_vault(older).release(RR(0.5))
    make_format(3, older)
    before = older.read_bytes()
    older.replace(path)
    with pytest.raises(ldp.LedgerError):
        vault.release(RR(0.25))
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize(
    "words",
    [
        "ledger show people.csv",
        "ledger show people.csv --json",
        "privatize people.csv --label ill --classes no,yes --epsilon 1 --out new.csv",
        "train people.csv --label ill --classes no,yes --epsilon 1 --out new",
    ],
)
def test_a_command_refuses_a_ledger_of_another_format_without_output(tmp_path, monkeypatch, capsys, number, words):
    from labeldp.cli import main

    def run(line):
        monkeypatch.setattr(sys, "argv", ["labeldp", *line.split()])
        with pytest.raises(SystemExit) as done:
            main()
        return done.value.code or 0, *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"age": range(60), "ill": ["no", "yes", "yes"] * 20}).write_csv("people.csv")
    privatize = "privatize people.csv --label ill --classes no,yes --epsilon 1 --out old.csv"
    assert run(privatize)[0] == 0
    ledger = tmp_path / "people.csv.ledger"
    make_format(number, ledger)
    before, files = ledger.read_bytes(), sorted(tmp_path.iterdir())
    code, output, errors = run(words)
    assert (code, output) == (2, "")
    assert message(ledger.name, number) in errors.replace(str(tmp_path) + "/", "")
    assert ledger.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize("statement", ["DELETE FROM labeldp_head", "INSERT INTO labeldp_head VALUES (3, 0, '')"])
def test_a_ledger_that_states_no_format_is_damaged(path, statement):
    open_vault(path)
    execute(path, statement)
    with pytest.raises(ldp.LedgerError, match="damaged"):
        open_vault(path)


def test_a_database_of_another_program_is_no_ledger(path):
    execute(path, "CREATE TABLE people (name TEXT)")
    with pytest.raises(ldp.LedgerError, match="is not a labeldp ledger: name another file"):
        open_vault(path)
