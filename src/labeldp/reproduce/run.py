"""Fill a table: train the missing cells, store each result, and compare the results with the paper."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labeldp.core.atomic_files import append_json_line, read_json_lines
from labeldp.data.loaders import load
from labeldp.learn.model import Model
from labeldp.representation.restart import train_two_encoders
from labeldp.reproduce.cells import CellConfig, ExperimentCell, ImageDataset, run_cell
from labeldp.reproduce.tables import Experiment

Line = dict[str, Any]


def read_dataset(experiment: Experiment, folder: Path, device: str, max_rows: int | None = None) -> ImageDataset:
    """Read a data set; for a trial, its first `max_rows` rows only."""
    parts = [load(experiment.data, folder, split) for split in ("train", "test")]
    splits = [(x.select(np.arange(min(len(x), max_rows or len(x)))).to(device), y[:max_rows]) for x, y in parts]
    (train, labels), (test, test_labels) = splits
    return ImageDataset(train, labels, test, test_labels)


def fill_table(
    experiment: Experiment,
    cells: list[ExperimentCell],
    data: ImageDataset,
    config: CellConfig,
    report: Callable[[str], None] = lambda message: None,
) -> list[Line]:
    """Return a line for each requested cell; train the cells that have no result yet."""
    results = config.work_folder / f"{experiment.name}.jsonl"
    done = {line["cell"]: line for line in read_json_lines(results)}
    if any(cell.row.encoder and cell.key not in done for cell in cells) and config.encoder is None:
        config = replace(config, encoder=train_or_load_encoder(data, config, report))
    for index, cell in enumerate(cells, 1):
        if cell.key in done:
            continue
        report(f"{index} of {len(cells)}: {cell.key}")
        done[cell.key] = run_cell(cell, data, experiment.delta, config, report)
        append_json_line(results, done[cell.key])
        shutil.rmtree(cell.checkpoint_folder(config.work_folder))
    return [done[cell.key] | {"method": cell.row.method, "epsilon": cell.epsilon} for cell in cells]


def train_or_load_encoder(data: ImageDataset, config: CellConfig, report: Callable[[str], None]) -> Model:
    """Return the encoder that all cells share: train it without labels, or load it from the work folder."""
    folder = config.work_folder / "encoder"
    if not folder.is_dir():
        report("training encoders without labels")
        training: dict[str, Any] = {"device": config.device, "progress": config.progress}
        training |= {"checkpoint": config.work_folder / "encoder.checkpoint"}
        train_two_encoders(data.train, config.model or "resnet18", config.epochs, **training).save(folder)
        for checkpoint in config.work_folder.glob("encoder*.checkpoint"):
            checkpoint.unlink()
    return Model.load(folder, config.device)


def compare_with_paper(experiment: Experiment, results: Path) -> list[Line]:
    """Return a line for each cell of the paper's table: its result, our mean over seeds, and the difference."""
    lines_by_cell: dict[tuple[str, float], list[Line]] = {}
    for line in read_json_lines(results):
        method, _, rest = line["cell"].rpartition(", epsilon ")
        lines_by_cell.setdefault((method, float(rest.split(",")[0])), []).append(line)
    lines = []
    for row in experiment.rows:
        for epsilon, paper in row.paper.items():
            runs = lines_by_cell.get((row.method, epsilon), [])
            ours = [line["accuracy"] for line in runs]
            line = {"method": row.method, "recipe": row.recipe, "epsilon": epsilon, "paper": paper, "seeds": len(ours)}
            if epsilon in row.audited:
                line["paper audited"] = row.audited[epsilon]
                line["audited"] = [run["audited"] for run in runs]
            if ours:
                line |= {
                    "ours": float(np.mean(ours)),
                    "minutes": float(np.mean([run["seconds"] for run in runs])) / 60,
                }
                line["deviation"] = float(np.std(ours, ddof=1)) if len(ours) > 1 else None
                line["difference"] = None if paper is None else line["ours"] - paper
            lines.append(line)
    return lines
