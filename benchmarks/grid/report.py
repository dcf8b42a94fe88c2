"""Tables of stored cells: means and deviations of every method, the regret of `auto`, and what breaks its rule."""

from dataclasses import asdict

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from grid import rule
from grid.methods import BASELINE
from grid.problems import PROBLEMS

_COLUMNS = {
    False: ("accuracy", "auc", "log_loss", "calibration_error"),
    True: ("r2", "rmse", "mae"),
}
_COSTS = ("cpu_seconds", "peak_mb")


def groups(cells):
    """Return the cells of each problem and epsilon, with the clean methods of that problem in every group."""
    found = {}
    for cell in cells:
        if cell["epsilon"] is not None:
            found.setdefault((cell["problem"], cell["epsilon"]), []).append(cell)
    for (problem, _), here in found.items():
        here += [cell for cell in cells if cell["problem"] == problem and cell["epsilon"] is None]
    order = list(PROBLEMS)
    return dict(sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def summary(cells, development):
    """Return the whole report as plain data: one entry for each problem and epsilon, coverage, and violations."""
    entries = [_entry(here, problem in development) for (problem, _), here in groups(cells).items()]
    versions = sorted({cell["code"] for cell in cells})
    return {
        "cells": entries,
        "coverage": {"all": coverage(cells), "auto": coverage([c for c in cells if c["method"] == "auto"])},
        "violations": [each for here in groups(cells).values() for each in rule.violations(here)],
        "code": versions,
    }


def _entry(cells, development):
    private = next(cell for cell in cells if cell["epsilon"] is not None)
    problem, epsilon = private["problem"], private["epsilon"]
    names = list(dict.fromkeys(cell["method"] for cell in cells))
    mine = [cell for cell in cells if cell["method"] == "auto" and cell["status"] == "ok"]
    compared = {
        measure: rule.regret(cells, measure) for measure in ("accuracy", "auc", "r2") if _has(cells, "auto", measure)
    }
    losses = {measure: rule.loss_to_baseline(cells, measure) for measure in ("auc", "log_loss")}
    return {
        "problem": problem,
        "epsilon": epsilon,
        "part": "development" if development else "judging",
        "rule holds": bool(mine) and rule.is_large(mine),
        "methods": {name: _method(cells, name) for name in names},
        "regret": {measure: each and asdict(each) for measure, each in compared.items()},
        "baseline learns": rule.baseline_learns(cells),
        "loss to baseline": {measure: asdict(each) for measure, each in losses.items() if each is not None},
    }


def _has(cells, method, measure):
    return bool(rule.values(cells, method, measure))


def _method(cells, name):
    mine = [cell for cell in cells if cell["method"] == name]
    done = [cell for cell in mine if cell["status"] == "ok"]
    found = {"seeds": len(done), "not finished": [cell["status"] for cell in mine if cell["status"] != "ok"]}
    found["errors"] = sorted({cell["error"] for cell in mine if "error" in cell})
    if done:
        found["train_rows"] = done[0]["train_rows"]
    for measure in (*_COLUMNS[False], *_COLUMNS[True], *_COSTS):
        each = list(rule.values(cells, name, measure).values())
        if each:
            found[measure] = [float(np.mean(each)), float(np.std(each, ddof=1)) if len(each) > 1 else 0.0]
    return found


def coverage(cells):
    """Return the share of private 95 % intervals that hold the measure of the test rows, and of how many cells."""
    shares = {}
    for cell in cells:
        for measure, held in cell.get("covered", {}).items():
            shares.setdefault(measure, []).append(held)
    return {measure: [float(np.mean(held)), len(held)] for measure, held in shares.items()}


def show(figures, console=None):
    """Print what `summary` returned."""
    console = console or Console(width=150)
    for entry in figures["cells"]:
        console.print(_table(entry))
        console.print(*_sentences(entry), sep="\n")
    for who, shares in figures["coverage"].items():
        words = ", ".join(f"{measure} {held:.1%} of {count}" for measure, (held, count) in shares.items())
        console.print(f"\nPrivate 95 % intervals that hold the test value, {who}: {words or 'none'}", end="")
    console.print(f"\nCode: {', '.join(figures['code'])}\nViolations: {len(figures['violations'])}")
    for each in figures["violations"]:
        console.print(f"  {_violation(each)}")


def _table(entry):
    columns = _COLUMNS[PROBLEMS[entry["problem"]].form == "numbers"]
    title = f"{entry['problem']} ({entry['part']}), epsilon {entry['epsilon']:g}: mean ± deviation over seeds"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("method")
    for name in (*columns, "CPU seconds", "peak MB", "rows", "seeds"):
        table.add_column(name.replace("_", " "), justify="right")
    for name, found in entry["methods"].items():
        if not found["seeds"]:
            table.add_row(name, *[found["not finished"][0], *[""] * (len(columns) + 3)])
            continue
        measures = [_figure(*found[each]) if each in found else "" for each in columns]
        costs = [f"{found[each][0]:,.0f}" for each in _COSTS]
        missing = f" (+{len(found['not finished'])} not finished)" if found["not finished"] else ""
        table.add_row(name, *measures, *costs, f"{found['train_rows']:,}", f"{found['seeds']}{missing}")
    return table


def _figure(mean, deviation):
    digits = 4 if abs(mean) < 10 else 1
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def _sentences(entry):
    for measure, each in entry["regret"].items():
        if each is None:
            yield f"  regret in {measure}: two seeds and another recipe are needed"
            continue
        allowed = rule.ALLOWED + 2 * each["error"]
        verdict = "ok" if each["mean"] <= allowed else "too much" if entry["rule holds"] else "small cell"
        best = ", ".join(dict.fromkeys(each["best"]))
        figures = f"{each['mean']:+.4f} (standard error {each['error']:.4f}, at most {allowed:.4f})"
        yield f"  regret in {measure}: {figures} against {best}: {verdict}"
    for measure, each in entry["loss to baseline"].items():
        verdict = "auto is at least as good" if each["mean"] <= 0 else "auto is worse"
        if not entry["baseline learns"]:
            verdict += ", but the baseline learned nothing"
        yield f"  {BASELINE}, {measure}: loss {each['mean']:+.4f} (standard error {each['error']:.4f}): {verdict}"


def _violation(each):
    place = f"{each['problem']}, epsilon {each['epsilon']:g}: {each['rule']}"
    if each["value"] is None:
        return place
    words = f"{place} {each['value']:.4f}, at most {each['allowed']:.4f}"
    if not each["allowed"] and each["value"] <= 2 * each["error"]:
        words += " (within two standard errors)"
    return words
