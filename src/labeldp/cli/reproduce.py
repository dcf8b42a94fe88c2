"""The command `labeldp reproduce`: tables of papers, trained again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labeldp.cli.options import AsJson, DeviceOption, Encoder
from labeldp.cli.terminal import print_result, show_status

if TYPE_CHECKING:
    from labeldp.reproduce.tables import Experiment


def reproduce(
    name: Annotated[
        str, typer.Argument(help="A table of a paper: ghazi-table-1, tang-table-3 ...; list prints all names.")
    ],
    data: Annotated[Path | None, typer.Option(help="The folder with the official files of CIFAR-10 or -100.")] = None,
    work: Annotated[Path, typer.Option(help="The folder for results, the encoder and unfinished cells.")] = Path(
        "reproductions"
    ),
    epsilons: Annotated[str | None, typer.Option(help="Only these epsilons, separated by commas.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this row of the table, by name; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="The number of trainings of each cell, with different seeds.")] = 1,
    encoder: Encoder = None,
    device: DeviceOption = "auto",
    sample: Annotated[int | None, typer.Option(min=1, help="For a trial: the number of images.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="For a trial: the number of epochs.")] = None,
    model: Annotated[str | None, typer.Option(help="For a trial: another network for all rows.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train the cells of a paper's table. Finished cells are reused, and an interrupted cell resumes."""
    from labeldp.core.errors import InputError
    from labeldp.reproduce.tables import EXPERIMENTS, get_experiment

    if name == "list":
        titles = {item.name: f"{item.title} ({_format_row_count(len(item.rows))})" for item in EXPERIMENTS.values()}
        print_result(titles, "\n".join(f"{key:<20}{title}" for key, title in titles.items()), as_json)
        return
    experiment = get_experiment(name)
    methods = {row.method for row in experiment.rows}
    for row_name in method or []:
        if row_name not in methods:
            raise InputError(f"{name} has no row {row_name!r}: its rows are {'; '.join(sorted(methods))}.")
    epsilon_values = _parse_epsilons(epsilons)
    if data is None:
        raise InputError("Name the folder with the official files of the data set: --data FOLDER.")
    from labeldp.data.base import choose_device
    from labeldp.learn.model import Model
    from labeldp.report.reproduction import print_reproduction
    from labeldp.reproduce import run
    from labeldp.reproduce.cells import CellConfig, select_cells

    torch_device = str(choose_device(device))
    selected = select_cells(experiment, seeds, epsilon_values, set(method) if method else None)
    if not selected:
        raise InputError(f"{name} has no such column: its epsilons are {_format_epsilons(experiment)}.")
    dataset = run.read_dataset(experiment, data, torch_device, sample)
    shared_encoder = None if encoder is None else Model.load(encoder, torch_device)
    trial_options = {"sample": sample, "epochs": epochs, "model": model}
    trial = " ".join(f"{option} {value}" for option, value in trial_options.items() if value is not None)
    folder = (
        work / "trials" / trial if trial else work
    )  # results of a trial are separate from those of the table and of other trials
    folder.mkdir(parents=True, exist_ok=True)
    run.fill_table(
        experiment,
        selected,
        dataset,
        CellConfig(folder, torch_device, shared_encoder, epochs, model, not as_json),
        show_status,
    )
    lines = run.compare_with_paper(experiment, folder / f"{experiment.name}.jsonl")
    if as_json:
        print_result({"name": name, "title": experiment.title, "trial": bool(trial), "lines": lines}, "", as_json)
    else:
        print_reproduction(f"{experiment.title}{' (a trial)' if trial else ''}", lines)


def _format_row_count(n_rows: int) -> str:
    return f"{n_rows} row{'s' * (n_rows != 1)}"


def _parse_epsilons(text: str | None) -> set[float] | None:
    from labeldp.core.errors import InputError

    try:
        return None if text is None else {float(word) for word in text.split(",")}
    except ValueError:
        raise InputError("--epsilons must be numbers separated by commas, like 0.5,1,2.") from None


def _format_epsilons(experiment: "Experiment") -> str:
    values = sorted({epsilon for row in experiment.rows for epsilon in row.paper})
    return ", ".join(f"{value:g}" for value in values)
