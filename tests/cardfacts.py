"""Data for tests of cards: the report of a training, an audit, and an entry of a ledger."""

FACTS = {
    "recipe": "moments",
    "summary": "sums <b>of</b> rows & labels",
    "guarantee": {"epsilon": 1.0, "delta": 1e-6, "unit": "label", "trust": "central", "derivation": ""},
    "releases": [{"mechanism": "LinearQuery", "rows": 12345, "epsilon": 1.0}],
    "score": {"n_rows": 400, "accuracy": [0.8125, 0.75, 0.875], "method": "noisy counts"},
    "warnings": [],
}
NOT_PRIVATE = FACTS | {"guarantee": FACTS["guarantee"] | {"epsilon": "inf"}}
ONE = {"kind": "one-run", "lower_bound": 0.4127, "confidence": 0.95, "stated_epsilon": 1.0, "canaries": 500}


def entry(name, mechanism="CorrectCount", origin="declared public", **more):
    facts = {"id": name, "mechanism": mechanism, "kind": "release", "epsilon": 0.5, "delta": 0.0, "released": 10}
    return facts | {"origin": origin, "status": "committed"} | more
