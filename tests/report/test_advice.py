import json

import pytest

from labeldp.recipes.advisor.forecast import advise
from labeldp.report.advice import print_advice, to_json

SETTINGS = [
    (50_000, 10, 0.5, 1e-5, "images", "cuda"),
    (1_000_000_000, 1000, 0.001, 1e-6, "images", "cpu"),
    (30, 3, 0.01, 0.0, "table", "cpu"),
]


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_table_fits_its_window_and_begins_with_the_choice(setting, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    advice = advise(*setting)
    print_advice(advice)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in "".join(lines)  # nothing was cut off
    assert lines[4].split()[0] == advice.recommended
    text = " ".join(" ".join(lines).split())
    assert f"Recommended: {advice.recommended}. {advice.reason}" in text
    assert all(line.recipe in text for line in advice.forecasts)
    assert all(
        use.mechanism in text for line in advice.forecasts if not line.reason for use in line.uses
    )  # no broken word
    assert ("A terminal with 100 columns also shows agreed and nats." in text) == (columns < 100)


@pytest.mark.parametrize("setting", SETTINGS)
def test_json_holds_everything_and_no_infinity(setting):
    advice = advise(*setting)
    data = json.loads(json.dumps(to_json(advice), allow_nan=False))
    assert data["recommended"] == advice.recommended
    assert data["setting"]["n_rows"] == setting[0]
    assert [line["recipe"] for line in data["recipes"]] == [line.recipe for line in advice.forecasts]
    first = data["recipes"][0]
    assert first["uses"] == [
        {"mechanism": "RandomizedResponse", "epsilon": setting[2], "delta": 0.0, "row_fraction": 1.0}
    ]
    assert all((line["duration"] is None) == bool(line["reason"]) for line in data["recipes"])
