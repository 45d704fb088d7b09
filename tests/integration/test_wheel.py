"""The wheel holds `logboom`, whole and typed, and nothing besides; it also works as it is, unpacked or not."""

import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import logboom

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> list[str]:
    """The names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def python(*words: str, path: list[Path]) -> str:
    """What a Python prints that finds these and our dependencies, and not this tree's portions."""
    packages = sysconfig.get_path("purelib")
    # Without `site` no .pth file is read: that of the editable install names our folders.
    return subprocess.run(
        [sys.executable, "-S", "-W", "error", *words],
        env={"PYTHONPATH": ":".join([*map(str, path), packages])},
        cwd="/",
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_the_only_top_level_names_are_ours(wheel_names: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"logboom", "pyspark_logboom"}
    assert len(tops) == 3


def test_every_module_of_the_tree_is_in_it(wheel_names: list[str]) -> None:
    portions = [path.parent for path in ROOT.glob("*/logboom")]
    sources = [
        str(path.relative_to(portion))
        for portion in portions
        for path in (*portion.glob("*/**/*.py"), *portion.rglob("py.typed"))
    ]
    console = ROOT / "console"
    sources += [
        str(path.relative_to(console))
        for folder in ("static", "templates")
        for path in (console / "logboom" / "console" / folder).rglob("*")
        if path.is_file()
    ]
    assert len(sources) > len(portions)
    assert sorted(sources) == sorted(name for name in wheel_names if ".dist-info/" not in name)


def test_the_licence_comes_along(wheel_names: list[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_names)


@pytest.mark.parametrize("unpacked", [True, False])
def test_every_module_is_found_in_it(wheel: Path, tmp_path: Path, unpacked: bool) -> None:
    """Zipped too, as `spark-submit --py-files` has it: a zip without entries for its folders."""
    where = tmp_path if unpacked else wheel
    if unpacked:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path)
    ask = """
import importlib.util, pkgutil, logboom
found = [m.name for m in pkgutil.walk_packages(logboom.__path__, "logboom.")]
print(logboom.__version__, *sorted(found))
"""
    said = python("-c", ask, path=[where]).split()
    with zipfile.ZipFile(wheel) as archive:
        names = [
            n.removesuffix(".py").removesuffix("/__init__")
            for n in archive.namelist()
            if n.startswith("logboom/") and n.endswith(".py")
        ]
    assert said == [
        version("logboom"),
        *sorted(n.replace("/", ".") for n in names if n != "logboom"),
    ]


@pytest.mark.thorough
def test_other_packages_may_add_to_the_namespace(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "logboom").mkdir()
    (tmp_path / "logboom" / "theirs.py").write_text("word = 'found'\n")
    ask = "import logboom.theirs, logboom.client; print(logboom.theirs.word)"
    assert python("-c", ask, path=[wheel, tmp_path]) == "found"
    assert python("-c", ask, path=[tmp_path, wheel]) == "found"


def test_it_is_a_command_and_has_a_version(wheel: Path) -> None:
    assert logboom.__version__ == version("logboom")
    assert python("-m", "logboom", "--version", path=[wheel]) == version("logboom")
    here = subprocess.run(
        [sys.executable, "-m", "logboom", "--version"], check=True, capture_output=True, text=True
    )
    assert here.stdout.strip() == version("logboom")
