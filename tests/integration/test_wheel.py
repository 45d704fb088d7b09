"""The wheel holds the namespace, whole and typed, and nothing besides."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the files in a wheel built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_only_top_level_names_are_ours(wheel_names: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"logboom", "pyspark_logboom"}
    assert len(tops) == 3


def test_the_namespace_stays_open(wheel_names: list[str]) -> None:
    assert "logboom/__init__.py" not in wheel_names


def test_every_module_of_the_tree_is_in_it(wheel_names: list[str]) -> None:
    portions = [path.parent for path in ROOT.glob("*/logboom")]
    sources = [
        str(path.relative_to(portion))
        for portion in portions
        for path in (*portion.rglob("*.py"), *portion.rglob("py.typed"))
    ]
    assert len(sources) > len(portions)
    assert sorted(sources) == sorted(name for name in wheel_names if ".dist-info/" not in name)


def test_the_licence_comes_along(wheel_names: list[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_names)
