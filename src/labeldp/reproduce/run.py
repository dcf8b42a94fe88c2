"""Fill a table: train the cells that are missing, keep each as it comes, and set ours beside the paper's."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labeldp.core.atomic_files import append_line, read_lines
from labeldp.data.loaders import load
from labeldp.learn.model import Model
from labeldp.representation.restart import two_encoders
from labeldp.reproduce.cells import Cell, Pictures, Setting, run
from labeldp.reproduce.tables import Experiment

Line = dict[str, Any]


def read(experiment: Experiment, folder: Path, device: str, sample: int | None = None) -> Pictures:
    """Read a data set, or its first rows for a trial."""
    parts = [load(experiment.data, folder, split) for split in ("train", "test")]
    chosen = [(x.select(np.arange(min(len(x), sample or len(x)))).to(device), y[:sample]) for x, y in parts]
    (train, labels), (test, truth) = chosen
    return Pictures(train, labels, test, truth)


def fill(
    experiment: Experiment,
    wanted: list[Cell],
    data: Pictures,
    setting: Setting,
    report: Callable[[str], None] = lambda what: None,
) -> list[Line]:
    """Return a line for every cell asked for, training those that are not in the results yet."""
    results = setting.work / f"{experiment.name}.jsonl"
    known = {line["cell"]: line for line in read_lines(results)}
    if any(cell.row.encoder and cell.key not in known for cell in wanted) and setting.encoder is None:
        setting = replace(setting, encoder=shared_encoder(data, setting, report))
    for number, cell in enumerate(wanted, 1):
        if cell.key in known:
            continue
        report(f"{number} of {len(wanted)}: {cell.key}")
        known[cell.key] = run(cell, data, experiment.delta, setting, report)
        append_line(results, known[cell.key])
        shutil.rmtree(cell.unfinished(setting.work))
    return [known[cell.key] | {"method": cell.row.method, "epsilon": cell.epsilon} for cell in wanted]


def shared_encoder(data: Pictures, setting: Setting, report: Callable[[str], None]) -> Model:
    """Train the label-free encoders that all cells share, side by side, or read them from the work folder."""
    folder = setting.work / "encoder"
    if not folder.is_dir():
        report("training encoders without labels")
        training: dict[str, Any] = {"device": setting.device, "progress": setting.progress}
        training |= {"checkpoint": setting.work / "encoder.checkpoint"}
        two_encoders(data.train, setting.model or "resnet18", setting.epochs, **training).save(folder)
        for checkpoint in setting.work.glob("encoder*.checkpoint"):
            checkpoint.unlink()
    return Model.load(folder, setting.device)


def table(experiment: Experiment, results: Path) -> list[Line]:
    """Return a line for every cell of the paper's table: its figure, ours over all seeds, and the difference."""
    found: dict[tuple[str, float], list[Line]] = {}
    for line in read_lines(results):
        method, _, rest = line["cell"].rpartition(", epsilon ")
        found.setdefault((method, float(rest.split(",")[0])), []).append(line)
    lines = []
    for row in experiment.rows:
        for epsilon, paper in row.paper.items():
            runs = found.get((row.method, epsilon), [])
            ours = [line["accuracy"] for line in runs]
            line = {"method": row.method, "recipe": row.recipe, "epsilon": epsilon, "paper": paper, "seeds": len(ours)}
            if epsilon in row.audited:
                line["paper audited"] = row.audited[epsilon]
                line["audited"] = [run["audited"] for run in runs]
            if ours:
                line |= {"ours": float(np.mean(ours)), "minutes": float(np.mean([r["seconds"] for r in runs])) / 60}
                line["deviation"] = float(np.std(ours, ddof=1)) if len(ours) > 1 else None
                line["difference"] = None if paper is None else line["ours"] - paper
            lines.append(line)
    return lines
