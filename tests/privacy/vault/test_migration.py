import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from bound_vault import RR, open_vault

import labeldp as ldp
from labeldp.privacy.vault import Ledger
from labeldp.report.ledger import read_ledger_report

# Written by labeldp 0.1.0 before the chain: releases of all rows at 0.5, of rows 0 to 299 at 0.25, a plan of rows 100
# to 899 at 0.625 of which one step was drawn, a budget that was raised from 9 to 12, and counts at 0.75.
OLD = gzip.decompress((Path(__file__).parent / "format_2.ledger.gz").read_bytes())
TOTAL = 2.125


@pytest.fixture
def old(path):
    path.write_bytes(OLD)
    return path


def test_no_total_and_no_release_changes(old):
    with sqlite3.connect(old) as db:
        entries = db.execute("SELECT id, kind, status, created FROM labeldp_entries ORDER BY number").fetchall()
        (mark,) = db.execute("SELECT value FROM labeldp_dataset WHERE key = 'mark'").fetchone()
    db.close()
    vault = open_vault(old, 12.0)
    assert vault.guarantee().epsilon == TOTAL
    assert vault.remaining(np.arange(950, 1000))[0] == 12.0 - 1.25
    known = [(e.id, e.kind, e.status, e.created) for e in vault.ledger.entries() if e.kind != "budget"]
    assert known == [entry for entry in entries if entry[1] != "budget"]
    assert f'"{vault._account.mark}"' == mark
    for ask in ({}, {"row_selection": np.arange(300)}):
        vault.release(RR(0.25 if ask else 0.5), **ask)
    plan = vault.plan(RR(0.125), RR(0.5), row_selection=np.arange(100, 900))
    plan.release(RR(0.125))
    assert vault.guarantee().epsilon == TOTAL  # all of them were stored
    assert len(vault.reused_entries) == 3
    plan.release(RR(0.5))
    assert vault.guarantee().epsilon == TOTAL


def test_the_old_file_is_kept(old):
    open_vault(old, 12.0)
    assert old.with_name("people.ledger.format-2").read_bytes() == OLD
    assert sorted(p.name for p in old.parent.iterdir()) == [
        "people.ledger",
        "people.ledger.format-2",
        "people.ledger.lock",
    ]


def test_a_report_reads_an_old_ledger(old):
    report = read_ledger_report(old)
    assert report["spent"]["epsilon"] == TOTAL
    assert report["budget"]["epsilon"] == 12.0
    assert [line["kind"] for line in report["entries"]] == ["release", "release", "plan", "step", "budget", "release"]


DYING = """
import os, shutil, signal, sys
import labeldp as ldp
from labeldp.privacy.vault import migration, schema
step, path = sys.argv[1:]
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
if step == "copying": schema.append = die
if step == "keeping": shutil.copy2 = die
if step == "replacing":
    replace = os.replace
    os.replace = lambda a, b: die() if str(b) == path else replace(a, b)
if step == "after": migration._sync = lambda path: die() if path.is_dir() else None
Ledger(path).entries()
"""


@pytest.mark.parametrize("step", ["copying", "keeping", "replacing", "after"])
def test_a_killed_migration_leaves_a_whole_ledger(old, step):
    done = subprocess.run([sys.executable, "-c", DYING, step, str(old)], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    if step != "after":
        assert old.read_bytes() == OLD
    assert open_vault(old, 12.0).guarantee().epsilon == TOTAL
    assert old.with_name("people.ledger.format-2").read_bytes() == OLD


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE labeldp_entries SET costs = 'nothing' WHERE number = 1",
        "UPDATE labeldp_entries SET details = '5' WHERE number = 1",
        "UPDATE labeldp_entries SET costs = replace(costs, '1/2', '-1/2') WHERE number = 1",
        "UPDATE labeldp_dataset SET value = '{}' WHERE key = 'budget'",
        "DELETE FROM labeldp_dataset WHERE key = 'identity'",
        "UPDATE labeldp_dataset SET value = '1' WHERE key = 'format'",
    ],
)
def test_a_damaged_old_ledger_is_not_migrated(old, statement):
    with sqlite3.connect(old) as db:
        assert db.execute(statement).rowcount == 1
    db.close()
    before = old.read_bytes()
    with pytest.raises(ldp.LedgerError, match=r"damaged|another version"):
        open_vault(old, 12.0)
    assert old.read_bytes() == before


def _open(path, results):
    results.put((os.getpid(), open_vault(path, 12.0).guarantee().epsilon))


def test_processes_that_race_migrate_once(old):
    context = get_context("fork")
    results = context.Queue()
    racers = [context.Process(target=_open, args=(old, results)) for _ in range(4)]
    for racer in racers:
        racer.start()
    assert [results.get(timeout=60)[1] for _ in racers] == [TOTAL] * 4
    for racer in racers:
        racer.join()


def test_labels_of_old_estimators_match_every_name(old):
    with sqlite3.connect(old) as db:
        identity = '{"name": "estimator", "label": "y", "rows": 1000, "digest": "abc", "columns": null}'
        db.execute("UPDATE labeldp_dataset SET value = ? WHERE key = 'identity'", (identity,))
    db.close()
    for label in ("income", None, "wealth"):
        known = ldp.Identity("estimator", label, 1000, "abc")
        vault = ldp.Vault([0, 1] * 500, ldp.LabelSpace([0, 1]), ldp.Budget(12.0), ledger=old, identity=known)
        vault.release(RR(0.5))
        assert vault.guarantee().epsilon == TOTAL
        assert len(vault.reused_entries) == 1


def test_labels_that_an_old_ledger_counts_elsewhere_need_that_ledger(tmp_path):
    """Ledgers of format 2 named labels that had a ledger of their own; what these say must not be forgotten."""
    import polars as pl

    from labeldp.privacy.vault.labeled_table import SecretTable

    data = tmp_path / "t.parquet"
    pl.DataFrame({"x": range(8), "y": ["a", "b"] * 4, "z": ["a", "b"] * 4}).write_parquet(data)
    first = SecretTable.open(data, "y", "a,b", excluded_columns=["z"])
    second = SecretTable.open(data, "z", "a,b", excluded_columns=["y"])
    second.vault(1.0, ledger=tmp_path / "z.ledger").release(RR(1.0))
    vault = first.vault(1.0)
    chain = vault.ledger.snapshot()
    vault.ledger.open(chain.facts | {"other secrets": ["z"]}, lambda chain: None)
    vault.release(RR(1.0))
    with pytest.raises(ldp.InputError, match=r"'z' has a ledger of its own: name that file \(--ledger\)"):
        second.vault(1.0)
    with pytest.raises(ldp.InputError, match="has a ledger of its own"):
        second.vault(1.0, ledger=tmp_path / "new.ledger")
    assert second.vault(1.0, ledger=tmp_path / "z.ledger").guarantee().epsilon == 1.0


@pytest.mark.parametrize("folder", ["what?", "no#1", "a%41b"])
def test_a_ledger_in_a_folder_of_any_name_is_migrated(tmp_path, folder):
    """SQLite is given the file as a URI, in which these characters have a meaning."""
    path = tmp_path / folder / "people.ledger"
    path.parent.mkdir()
    path.write_bytes(OLD)
    assert read_ledger_report(path)["spent"]["epsilon"] == TOTAL


@pytest.mark.parametrize("costs", ["", "{}"])
def test_an_entry_that_has_lost_its_cost_is_not_migrated_as_free(old, costs):
    with sqlite3.connect(old) as db:
        db.execute("UPDATE labeldp_entries SET costs = ? WHERE kind = 'release'", (costs,))
    db.close()
    with pytest.raises(ldp.LedgerError, match="damaged"):
        read_ledger_report(old)
    with sqlite3.connect(old) as db:
        assert db.execute("SELECT count(*) FROM labeldp_entries").fetchone()[0] > 0  # it is untouched
    db.close()


def edit(path, *statements):
    with sqlite3.connect(path) as db:
        for statement, *values in statements:
            db.execute(statement, values)
    db.close()


def budgets(path):
    """The first budget of a ledger, those of its changes, and the present one."""
    with sqlite3.connect(path) as db:
        (bound,) = db.execute("SELECT body FROM labeldp_events WHERE kind = 'bind'").fetchone()
    db.close()
    changes = [e.details["to"] for e in Ledger(path).entries() if e.kind == "budget"]
    every = [json.loads(bound)["budget"], *changes, Ledger(path).facts()["budget"]]
    return [budget["epsilon"] for budget in every]


def test_changes_of_the_budget_are_kept(old):
    open_vault(old, 12.0)
    assert budgets(old) == [9.0, 12.0, 12.0]


def test_a_ledger_whose_budget_never_changed_keeps_it(old):
    edit(old, ["DELETE FROM labeldp_entries WHERE kind = 'budget'"])
    open_vault(old, 12.0)
    assert budgets(old) == [12.0, 12.0]


def test_a_budget_that_no_entry_explains_is_recorded(old):
    """As a process leaves it that was killed between the two."""
    present = '{"epsilon": 11.0, "delta": 0.0, "composition": "sum", "order": null}'
    edit(old, ["UPDATE labeldp_dataset SET value = ? WHERE key = 'budget'", present])
    open_vault(old, 11.0)
    assert budgets(old) == [9.0, 12.0, 11.0, 11.0]


def test_entries_keep_the_name_of_their_label(old):
    """One without a name would answer requests for every label of these rows."""
    assert {e.label for e in open_vault(old, 12.0).ledger.entries() if e.kind != "budget"} == {"income"}
    other = ldp.Identity("people", "illness", 1000, "abc")
    vault = ldp.Vault([0, 1] * 500, ldp.LabelSpace([0, 1]), ldp.Budget(12.0), ledger=old, identity=other)
    vault.release(RR(0.5))
    assert not vault.reused_entries


def test_a_release_that_was_stored_in_parts_is_put_together(old):
    edit(
        old,
        ["INSERT INTO labeldp_payloads SELECT entry, 1, substr(data, 11) FROM labeldp_payloads WHERE part = 0"],
        ["UPDATE labeldp_payloads SET data = substr(data, 1, 10) WHERE part = 0"],
    )
    vault = open_vault(old, 12.0)
    assert len(vault.release(RR(0.5)).labels()) == 1000
    assert len(vault.reused_entries) == 1
