"""`labeldp reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from labeldp.cli.options import AsJson, Device, Encoder
from labeldp.cli.screen import say, tell


def reproduce(
    name: Annotated[str, typer.Argument(help="A table of a paper: ghazi-table-1, tang-table-3 ...; or list.")],
    data: Annotated[Path | None, typer.Option(help="The folder with the official files of CIFAR-10 or -100.")] = None,
    work: Annotated[Path, typer.Option(help="Where results, the encoder and unfinished cells are kept.")] = Path(
        "reproductions"
    ),
    epsilons: Annotated[str | None, typer.Option(help="Only these columns, separated by commas.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this row, by its name there; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How often each cell is trained.")] = 1,
    encoder: Encoder = None,
    device: Device = "auto",
    sample: Annotated[int | None, typer.Option(min=1, help="Only so many pictures: a trial.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Shorter trainings: a trial.")] = None,
    model: Annotated[str | None, typer.Option(help="Another network for all rows: a trial.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a table of a paper again; what was trained before is kept, and a cell that was stopped goes on."""
    from labeldp.core.errors import InputError
    from labeldp.reproduce.tables import EXPERIMENTS, find

    if name == "list":
        listed = {each.name: f"{each.title} ({_counted(len(each.rows))})" for each in EXPERIMENTS.values()}
        say(listed, "\n".join(f"{key:<20}{title}" for key, title in listed.items()), as_json)
        return
    experiment = find(name)
    known = {row.method for row in experiment.rows}
    for each in method or []:
        if each not in known:
            raise InputError(f"{name} has no row {each!r}: its rows are {'; '.join(sorted(known))}.")
    columns = _numbers(epsilons)
    if data is None:
        raise InputError("Name the folder with the official files of the data set: --data FOLDER.")
    from labeldp.data.base import choose_device
    from labeldp.learn.model import Model
    from labeldp.report.reproduction import print_reproduction
    from labeldp.reproduce import run
    from labeldp.reproduce.cells import Setting, cells

    where = str(choose_device(device))
    wanted = cells(experiment, seeds, columns, set(method) if method else None)
    if not wanted:
        raise InputError(f"{name} has no such column: its epsilons are {_columns(experiment)}.")
    pictures = run.read(experiment, data, where, sample)
    shared = None if encoder is None else Model.load(encoder, where)
    changed = {"sample": sample, "epochs": epochs, "model": model}
    trial = " ".join(f"{what} {value}" for what, value in changed.items() if value is not None)
    folder = work / "trials" / trial if trial else work  # a trial's figures are not the table's, nor another trial's
    folder.mkdir(parents=True, exist_ok=True)
    run.fill(experiment, wanted, pictures, Setting(folder, where, shared, epochs, model, not as_json), tell)
    lines = run.table(experiment, folder / f"{experiment.name}.jsonl")
    if as_json:
        say({"name": name, "title": experiment.title, "trial": bool(trial), "lines": lines}, "", as_json)
    else:
        print_reproduction(f"{experiment.title}{' (a trial)' if trial else ''}", lines)


def _counted(rows: int) -> str:
    return f"{rows} row{'s' * (rows != 1)}"


def _numbers(text: str | None) -> set[float] | None:
    from labeldp.core.errors import InputError

    try:
        return None if text is None else {float(word) for word in text.split(",")}
    except ValueError:
        raise InputError("--epsilons must be numbers separated by commas, like 0.5,1,2.") from None


def _columns(experiment: object) -> str:
    values = sorted({epsilon for row in experiment.rows for epsilon in row.paper})  # type: ignore[attr-defined]
    return ", ".join(f"{value:g}" for value in values)
