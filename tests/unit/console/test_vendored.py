"""The scripts of others are those that were fetched."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("console/logboom/console/static", "tests/data/browser")


@pytest.mark.parametrize("folder", FOLDERS)
def test_vendored_files_are_as_recorded(folder: str) -> None:
    records = tomllib.loads((ROOT / folder / "VENDORED.toml").read_text(encoding="utf-8"))["file"]
    for record in records:
        found = hashlib.sha256((ROOT / folder / record["path"]).read_bytes()).hexdigest()
        assert found == record["sha256"], f"{record['path']}: run console/vendor_static.py"
        assert record["licence"]
        assert record["version"]


def test_every_vendored_file_is_recorded() -> None:
    static = ROOT / FOLDERS[0]
    records = tomllib.loads((static / "VENDORED.toml").read_text(encoding="utf-8"))["file"]
    present = {f"vendored/{path.name}" for path in (static / "vendored").iterdir()}
    assert present == {record["path"] for record in records}
