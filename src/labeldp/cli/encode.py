"""The command `labeldp encode`: image encoders that are trained without labels."""

from pathlib import Path
from typing import Annotated

import typer

from labeldp.cli.options import AsJson, DeviceOption, Flip, LeaveOut
from labeldp.cli.terminal import print_result


def encode(
    data: Annotated[Path, typer.Argument(help="A .parquet table with a column of image files.")],
    out: Annotated[Path, typer.Option(help="The new folder, for --encoder of other commands.")],
    model: Annotated[str, typer.Option(help="auto (resnet18, on a CPU cnn), or a network for images.")] = "auto",
    flip: Flip = False,
    leave_out: LeaveOut = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="The epochs of the first encoder; the default depends on the device.")
    ] = None,
    device: DeviceOption = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The seed of the training.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Train image encoders without labels: no other column is read, and no budget is spent."""
    import json
    import time

    from labeldp.core.atomic_files import atomic_write, check_writable
    from labeldp.core.errors import InputError
    from labeldp.core.version import __version__
    from labeldp.data.files import TableFile

    check_writable(out)
    if data.suffix != ".parquet":
        raise InputError(
            "Images must be PNG or JPEG files in a column of a .parquet table, which Polars writes: "
            "pl.DataFrame({'image': [path.read_bytes() for path in paths]}).write_parquet('images.parquet')."
        )
    file = TableFile(data)
    from labeldp.data.base import choose_device  # imports torch, so only after the checks
    from labeldp.learn.model import Model
    from labeldp.representation.restart import check_backbone, train_two_encoders
    from labeldp.runs.checkpoints import checkpoint_folder
    from labeldp.runs.feature_files import read_image_column

    choose_device(device)
    check_backbone(model)
    images = read_image_column(file, flip, leave_out or ())
    start = time.perf_counter()
    with checkpoint_folder(out) as checkpoints:
        options = {"device": device, "seed": seed, "progress": not as_json, "checkpoint": checkpoints}
        encoders = train_two_encoders(images, model, epochs, **options)
        with atomic_write(out) as partial:
            encoders.save(partial, quantize=True)
            # Runs identify their encoder by the digest of the stored weights.
            measured = {
                "digest": Model.load(partial, "cpu").digest()[:16],
                "minutes": round((time.perf_counter() - start) / 60, 1),
            }
            facts = {
                "data": data.name,
                "images": len(images),
                "flip": flip,
                "epochs": epochs,
                "seed": seed,
                **measured,
            }
            (partial / "made.json").write_text(json.dumps(facts | {"version": __version__}, indent=2) + "\n")
    print_result(
        {"out": str(out), **facts},
        f"Wrote {out}: two encoders of {len(images):,} images. No label was read.",
        as_json,
    )
