import math

import numpy as np
import pytest

import labeldp as ldp
from labeldp.mechanisms import GroupHistogram
from labeldp.report.ledger import print_ledger, read_ledger_report

SPACE = ldp.LabelSpace([0, 1])


def vault(path, **options):
    identity = ldp.Identity("people", "income", 4, "abc")
    return ldp.Vault([0, 1, 1, 0], SPACE, ldp.Budget(2.0, 1e-5), ledger=path, identity=identity, **options)


def test_disjoint_rows_are_not_added(tmp_path):
    v = vault(tmp_path / "l")
    v.release(ldp.RandomizedResponse(1.0), row_selection=[0, 1])
    v.release(ldp.RandomizedResponse(0.5), row_selection=[2, 3])
    report = read_ledger_report(tmp_path / "l")
    assert report["spent"] == {"epsilon": 1.0, "delta": 0.0, "exact": True}
    assert report["spent"]["epsilon"] == v.guarantee().epsilon


def test_for_users_the_sum_is_an_upper_bound(tmp_path):
    v = vault(tmp_path / "l", users=["u", "v", "v", "w"])
    v.release(ldp.RandomizedResponse(0.5))
    v.release(ldp.RandomizedResponse(0.3), row_selection=[0])
    report = read_ledger_report(tmp_path / "l")
    assert report["spent"]["exact"] is False
    assert report["spent"]["epsilon"] >= v.guarantee().epsilon


def test_ledger_shows_each_of_several_labels_of_the_same_rows(tmp_path, capsys):
    vault(tmp_path / "l").release(ldp.RandomizedResponse(1.0))
    print_ledger(read_ledger_report(tmp_path / "l"))
    assert "people: column income" in capsys.readouterr().out
    other = ldp.Identity("people", "ill", 4, "abc")
    ldp.Vault([0] * 4, SPACE, ldp.Budget(2.0, 1e-5), ledger=tmp_path / "l", identity=other).release(
        ldp.RandomizedResponse(0.5)
    )
    print_ledger(read_ledger_report(tmp_path / "l"))
    text = capsys.readouterr().out
    assert all(word in text for word in ("label", "income", "ill", "spent epsilon 1.5"))


def test_a_lost_release_is_shown_as_spent(tmp_path, monkeypatch, capsys):
    v = vault(tmp_path / "l")
    monkeypatch.setattr(ldp.RandomizedResponse, "draw", lambda self, *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        v.release(ldp.RandomizedResponse(1.0))
    report = read_ledger_report(tmp_path / "l")
    assert report["entries"][0]["status"] == "failed, counted as spent"
    print_ledger(report)
    text = " ".join(capsys.readouterr().out.split())
    assert "failed, counted as spent" in text
    assert "has spent epsilon 1 and delta 0 of epsilon 2 and delta 1e-05; epsilon 1 remains" in text


def test_a_release_under_way_is_shown_as_such(tmp_path):
    v = vault(tmp_path / "l")
    seen = []

    class Watching(ldp.RandomizedResponse):
        def draw(self, *arguments):
            seen.append(read_ledger_report(tmp_path / "l")["entries"][0]["status"])
            return super().draw(*arguments)

    v.release(Watching(1.0))
    v.release(GroupHistogram(np.zeros(4, int), 0.5, 1e-6))
    assert seen == ["in progress"]
    assert [e["status"] for e in read_ledger_report(tmp_path / "l")["entries"]] == ["done", "done"]


def test_no_budget_cuts_what_has_no_guarantee(tmp_path, monkeypatch):
    v = vault(tmp_path / "l", users=["u", "v", "v", "w"])
    monkeypatch.setattr(ldp.RandomizedResponse, "price", lambda *_: (math.inf, 0))
    v.release(ldp.RandomizedResponse(0.5))
    assert read_ledger_report(tmp_path / "l")["spent"]["epsilon"] == v.guarantee().epsilon == math.inf


def test_a_link_to_the_data_has_the_ledger_of_the_data(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "people.csv").write_text("x,y\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "data" / "people.csv")
    vault(tmp_path / "data" / "people.csv.ledger").release(ldp.RandomizedResponse(1.0))
    assert read_ledger_report(tmp_path / "link.csv")["spent"]["epsilon"] == 1.0


def test_names_are_shown_as_they_are(tmp_path, capsys):
    identity = ldp.Identity("people[old].csv", "ill [bold]", 4, "abc")
    held = ldp.Vault([0, 1, 1, 0], SPACE, ldp.Budget(2.0), ledger=tmp_path / "l", identity=identity)
    held.release(ldp.RandomizedResponse(1.0))
    print_ledger(read_ledger_report(tmp_path / "l"))
    assert "people[old].csv: column ill [bold]" in capsys.readouterr().out


def test_links_in_a_circle_are_no_ledger(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    with pytest.raises(ldp.LedgerError, match="no ledger"):
        read_ledger_report(one)
