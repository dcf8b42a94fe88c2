"""The command `labeldp account`: what answers of teachers' votes cost."""

from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.options import AsJson

_REQUIRED = {
    "lnmax": ("scale",),
    "gnmax": ("sigma",),
    "confident-gnmax": ("threshold", "sigma1", "sigma2"),
}


def account(
    votes: Annotated[
        Path, typer.Argument(help="A .npy file of vote counts: a row for each query, a column for each class.")
    ],
    mechanism: Annotated[str, typer.Option(help="lnmax, gnmax or confident-gnmax.")],
    scale: Annotated[float | None, typer.Option(help="lnmax: the scale of the Laplace noise, in votes.")] = None,
    sigma: Annotated[float | None, typer.Option(help="gnmax: the standard deviation of the noise, in votes.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="confident-gnmax: the number of votes that the winner needs.")
    ] = None,
    sigma1: Annotated[
        float | None, typer.Option(help="confident-gnmax: the standard deviation of the noise of that test.")
    ] = None,
    sigma2: Annotated[
        float | None, typer.Option(help="confident-gnmax: the standard deviation of the noise of the maximum.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The delta of the guarantee.")] = 1e-5,
    queries: Annotated[
        int | None, typer.Option(help="Stop after this number of queries; by default, after the last.")
    ] = None,
    answers: Annotated[float | None, typer.Option(help="Stop after this number of expected answers.")] = None,
    conversion: Annotated[
        str, typer.Option(help="From Renyi divergence to epsilon: classic, as in the papers, or tight.")
    ] = "tight",
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Draw a figure that may be published. Draw it once for one set of votes.")
    ] = False,
    order: Annotated[
        float | None,
        typer.Option(help="The Renyi order of the sanitized figure. Choose it without knowledge of the votes."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the privacy cost of answers of teachers' votes from a file of vote counts."""
    from labeldp.cli.terminal import print_result
    from labeldp.core.errors import InputError
    from labeldp.privacy.teachers.vote_accounting import account_votes

    if order is not None and not sanitize:
        raise InputError("--order is the order of the sanitized figure: add --sanitize, or leave --order out.")
    if sanitize and answers is not None:
        raise InputError("A sanitized figure needs a number of queries that no vote sets: leave --answers out.")
    parameters = {"scale": scale, "sigma": sigma, "threshold": threshold, "sigma1": sigma1, "sigma2": sigma2}
    vote_mechanism = _make_mechanism(mechanism, parameters)
    counts = _read_votes(votes)
    result = account_votes(counts, vote_mechanism, delta, n_queries=queries, n_answers=answers, conversion=conversion)  # type: ignore[arg-type]
    caps_from_votes = "epsilon_data_independent" not in result.publishable
    if sanitize:
        from labeldp.privacy.teachers import sanitizing

        result = sanitizing.sanitize(result, counts, vote_mechanism, order)
    print_result(result.to_json(), _format_result(result, caps_from_votes), as_json)


def _format_result(result: Any, caps_from_votes: bool) -> str:
    is_sanitized = result.epsilon_sanitized is not None
    notes = {
        "epsilon_data_independent": "for any votes, if these caps were fixed in advance"
        + (
            "; here the votes set them: do not publish"
            if caps_from_votes
            else "; not beside the next figure" * is_sanitized
        ),
        "epsilon_sanitized": "covers answers and itself: may be published once, if the queries were fixed in advance"
        + _format_warning(result),
        "epsilon_data_dependent": "depends on the votes: do not publish",
    }
    figures = [(name, getattr(result, name), note) for name, note in notes.items() if getattr(result, name) is not None]
    heading = (
        f"{result.queries:,} queries, {result.answers:,.1f} answers expected, delta {result.delta:g}, "
        f"{result.conversion} conversion:"
    )
    return "\n".join([heading, *(f"  {name:<25} {value:.4f}  ({note})" for name, value, note in figures)])


def _format_warning(result: Any) -> str:
    """Return a warning if the votes agree too little for a useful sanitized figure."""
    is_larger = (result.epsilon_sanitized or 0.0) > result.epsilon_data_independent
    return "; the first figure is smaller, and is valid if this one is not published" * is_larger


def _make_mechanism(name: str, parameters: dict[str, float | None]) -> Any:
    from labeldp.core.errors import InputError
    from labeldp.privacy.mechanisms.vote_aggregators import ConfidentGNMax, GNMax, LNMax

    if name not in _REQUIRED:
        raise InputError(f"--mechanism must be one of {', '.join(_REQUIRED)}.")
    missing = [option for option in _REQUIRED[name] if parameters[option] is None]
    if missing:
        raise InputError(f"{name} needs --{' and --'.join(missing)}.")
    unused = [option for option, value in parameters.items() if value is not None and option not in _REQUIRED[name]]
    if unused:
        raise InputError(f"{name} takes no --{' or --'.join(unused)}: it needs --{', --'.join(_REQUIRED[name])}.")
    mechanism_class: Any = {"lnmax": LNMax, "gnmax": GNMax, "confident-gnmax": ConfidentGNMax}[name]
    caps = {"max_queries": 1} | ({"max_answers": 1} if mechanism_class is ConfidentGNMax else {})
    return mechanism_class(**{option: parameters[option] for option in _REQUIRED[name]}, **caps)


def _read_votes(path: Path) -> Any:
    import numpy as np

    from labeldp.core.errors import InputError
    from labeldp.privacy.teachers.vote_accounting import read_votes

    try:
        votes = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError, EOFError):
        raise InputError(f"{path} is not a .npy file of numbers: write it with numpy.save.") from None
    if not isinstance(votes, np.ndarray):
        votes.close()
        raise InputError(f"{path} holds several arrays: give a .npy file with one table of votes.")
    return read_votes(votes)
