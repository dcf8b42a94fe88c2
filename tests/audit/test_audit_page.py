from pathlib import Path

from labeldp.audit.mechanism_names import MECHANISM_NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()


def test_every_name_is_there():
    assert all(f"`{name}`" in PAGE for name in MECHANISM_NAMES)
