import json

import pytest
from cardfacts import FACTS, ONE

import labeldp as ldp
from labeldp.report.card import card_of_run, write_card


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(FACTS))
    (tmp_path / "ledger.json").write_text("[]")
    return tmp_path


def test_a_card_is_written_in_three_forms_and_again_only_where_it_changes(run):
    card = write_card(run)
    written = {path.name: path.stat().st_mtime_ns for path in run.glob("card.*")}
    assert sorted(written) == ["card.html", "card.json", "card.md"]
    assert write_card(run) == card
    assert {path.name: path.stat().st_mtime_ns for path in run.glob("card.*")} == written
    (run / "audit.json").write_text(json.dumps(ONE))
    write_card(run)
    assert all("0.412" in (run / name).read_text(encoding="utf-8") for name in written)
    assert not list(run.glob(".*"))


def test_what_is_no_run_folder_is_said_to_be_none(run, tmp_path):
    with pytest.raises(ldp.InputError, match="is not a run folder"):
        card_of_run(tmp_path / "absent")
    (run / "run.json").write_text("{}")
    with pytest.raises(ldp.InputError, match="is damaged"):
        card_of_run(run)


def test_a_folder_that_cannot_be_written_is_said_to_be_so(run):
    (run / "card.html").mkdir()
    with pytest.raises(ldp.InputError, match="cannot be written"):
        write_card(run)
    assert not list(run.glob(".*"))
