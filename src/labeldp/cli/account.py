"""`labeldp account`."""

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
    votes: Annotated[Path, typer.Argument(help="A .npy file of vote counts: a row for each query, a column a class.")],
    mechanism: Annotated[str, typer.Option(help="lnmax, gnmax or confident-gnmax.")],
    scale: Annotated[float | None, typer.Option(help="lnmax: the scale of the Laplace noise, in votes.")] = None,
    sigma: Annotated[float | None, typer.Option(help="gnmax: the deviation of the noise, in votes.")] = None,
    threshold: Annotated[float | None, typer.Option(help="confident-gnmax: how many votes the winner needs.")] = None,
    sigma1: Annotated[float | None, typer.Option(help="confident-gnmax: the noise of that test.")] = None,
    sigma2: Annotated[float | None, typer.Option(help="confident-gnmax: the noise of the noisy maximum.")] = None,
    delta: Annotated[float, typer.Option(help="What may be lost beyond epsilon.")] = 1e-5,
    queries: Annotated[int | None, typer.Option(help="Stop at so many queries; by default, at the last.")] = None,
    answers: Annotated[float | None, typer.Option(help="Stop at so many expected answers.")] = None,
    conversion: Annotated[str, typer.Option(help="From Renyi to epsilon: classic, as papers do, or tight.")] = "tight",
    sanitise: Annotated[
        bool, typer.Option("--sanitise", help="Draw a figure that may be published: once, for one set of votes.")
    ] = False,
    order: Annotated[
        float | None, typer.Option(help="The Renyi order of the sanitised figure, chosen without a look at votes.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what answers from teachers' votes cost, from a file of vote counts alone."""
    from labeldp.cli.terminal import print_result
    from labeldp.core.errors import InputError
    from labeldp.privacy.teachers.vote_accounting import account_votes as account_votes

    if order is not None and not sanitise:
        raise InputError("--order is the order of the sanitised figure: add --sanitise, or leave it out.")
    if sanitise and answers is not None:
        raise InputError("A sanitised figure is for a number of queries that no vote set: leave --answers out.")
    parameters = {"scale": scale, "sigma": sigma, "threshold": threshold, "sigma1": sigma1, "sigma2": sigma2}
    vote_mechanism = _make_mechanism(mechanism, parameters)
    counts = _read_votes(votes)
    result = account_votes(counts, vote_mechanism, delta, n_queries=queries, n_answers=answers, conversion=conversion)  # type: ignore[arg-type]
    caps_from_votes = "epsilon_data_independent" not in result.publishable
    if sanitise:
        from labeldp.privacy.teachers.sanitizing import sanitize

        result = sanitize(result, counts, vote_mechanism, order)
    print_result(result.to_json(), _format_result(result, caps_from_votes), as_json)


def _format_result(result: Any, caps_from_votes: bool) -> str:
    is_sanitized = result.epsilon_sanitised is not None
    notes = {
        "epsilon_data_independent": "for any votes, if these caps were fixed beforehand"
        + (
            "; here the votes set them: do not publish"
            if caps_from_votes
            else "; not beside the next figure" * is_sanitized
        ),
        "epsilon_sanitised": "for the answers and itself: may be published, once, if the queries were fixed beforehand"
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
    """Say if the votes agreed too little for a sanitised figure to be of use."""
    is_useless = (result.epsilon_sanitised or 0.0) > result.epsilon_data_independent
    return "; the first is smaller, and holds if this one is shown to nobody" * is_useless


def _make_mechanism(name: str, parameters: dict[str, float | None]) -> Any:
    from labeldp.core.errors import InputError
    from labeldp.privacy.mechanisms.voting import ConfidentGNMax, GNMax, LNMax

    if name not in _REQUIRED:
        raise InputError(f"--mechanism must be one of {', '.join(_REQUIRED)}.")
    missing = [option for option in _REQUIRED[name] if parameters[option] is None]
    if missing:
        raise InputError(f"{name} needs --{' and --'.join(missing)}.")
    extra = [option for option, value in parameters.items() if value is not None and option not in _REQUIRED[name]]
    if extra:
        raise InputError(f"{name} takes no --{' or --'.join(extra)}: it needs --{', --'.join(_REQUIRED[name])}.")
    kind: Any = {"lnmax": LNMax, "gnmax": GNMax, "confident-gnmax": ConfidentGNMax}[name]
    caps = {"max_queries": 1} | ({"max_answers": 1} if kind is ConfidentGNMax else {})
    return kind(**{option: parameters[option] for option in _REQUIRED[name]}, **caps)


def _read_votes(path: Path) -> Any:
    import numpy as np

    from labeldp.core.errors import InputError
    from labeldp.privacy.teachers.vote_accounting import read_votes

    try:
        votes = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError, EOFError):
        raise InputError(f"{path} is not a .npy file of numbers: write it by numpy.save.") from None
    if not isinstance(votes, np.ndarray):
        votes.close()
        raise InputError(f"{path} holds several arrays: give a .npy file with one table of votes.")
    return read_votes(votes)
