import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/draw_layers.py"
spec = importlib.util.spec_from_file_location("draw_layers", SCRIPT)
draw_layers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(draw_layers)


def test_the_picture_in_the_documents_shows_the_layers_that_are_checked():
    assert draw_layers.PICTURE.read_text() == draw_layers.draw(), "run python scripts/draw_layers.py"


def test_every_package_is_in_a_layer():
    drawn = {name for layer in draw_layers.layers("labeldp") for name in layer}
    folders = {path.parent.name for path in (draw_layers.ROOT / "src/labeldp").glob("*/__init__.py")}
    assert folders == drawn | {"mechanisms"}
