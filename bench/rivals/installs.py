"""The cache of the harness: a Python environment of the rivals' clients, jars, and built servers."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.rivals.rival import RivalUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REQUIREMENTS: Final = Path(__file__).with_name("clients.lock")
"""The rivals' clients, pinned and hashed; `make lock` writes it."""
SYSTEM_FOLDERS: Final = ("/usr/sbin", "/usr/lib/rabbitmq/bin")
"""Folders with servers of Debian that are not in everybody's PATH."""
POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>{name}</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


def default_folder() -> Path:
    """Return the cache's usual folder."""
    caches = os.environ.get("XDG_CACHE_HOME", "") or "~/.cache"
    return Path(caches).expanduser() / "logboom-rivals"


def find_program(name: str, package: str) -> str:
    """Return the path of a program.

    Raises:
        RivalUnavailable: it is not installed; the text has the line that installs it.
    """
    folders = os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_FOLDERS])
    found = shutil.which(name, path=folders)
    if found is None:
        raise RivalUnavailable(f"{name} is not installed: sudo apt-get install {package}")
    return found


def version_of(program: str, pattern: str) -> str:
    """Return the version in what a program prints about itself; the whole if nothing matches."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found = re.search(pattern, said.stdout)
    return found[1] if found else said.stdout.strip()


def find_java() -> str:
    """Return the path of Java 17 or newer.

    Raises:
        RivalUnavailable: there is none.
    """
    package = "openjdk-17-jre-headless"
    java = find_program("java", package)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        raise RivalUnavailable(f"{java} is not Java 17 or newer: sudo apt-get install {package}")
    return java


class Cache:
    """A folder that holds what the harness has installed, so that the next run finds it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._python: Path | None = None

    def python(self) -> Path:
        """Return an interpreter that has the rivals' clients; install them if they changed.

        Raises:
            RivalUnavailable: they cannot be installed.
        """
        if self._python is None:
            digest = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
            home = self.folder / f"clients-{digest[:12]}"
            words = ["-m", "pip", "--quiet", "install", "--require-hashes", "-r", str(REQUIREMENTS)]

            def build(folder: Path) -> None:
                self._run([sys.executable, "-m", "venv", str(folder)])
                self._run([str(folder / "bin" / "python"), *words])

            self._once(home, build)
            self._python = home / "bin" / "python"
        return self._python

    def jars(self, name: str, coordinates: Sequence[str]) -> Path:
        """Return a folder with the jars of Maven Central and all that they need.

        Args:
            name: The folder's name.
            coordinates: group:artifact:version of each.

        Raises:
            RivalUnavailable: Maven is not installed, or the jars cannot be fetched.
        """

        def build(folder: Path) -> None:
            maven = find_program("mvn", "maven")
            folder.mkdir(parents=True)
            listed = "".join(DEPENDENCY.format(*each.split(":")) for each in coordinates)
            pom = folder / "pom.xml"
            pom.write_text(POM.format(name=name, dependencies=listed), "utf-8")
            words = [
                "-q",
                "-B",
                "-C",
                f"-Dmaven.repo.local={self.folder / 'maven'}",
                "-f",
                str(pom),
            ]
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            self._run([maven, *words, *goal, f"-DoutputDirectory={folder}"])

        home = self.folder / name
        self._once(home, build)
        return home

    def go_program(self, name: str, package: str) -> Path:
        """Return a program built from a pinned Go module.

        Args:
            name: The program's name.
            package: path@version of its package.

        Raises:
            RivalUnavailable: Go is not installed, or cannot build it.
        """
        home = self.folder / f"{name}-{package.rpartition('@')[2]}"

        def build(folder: Path) -> None:
            go = shutil.which("go")
            if go is None:
                raise RivalUnavailable(f"{name} is built by Go 1.21 or newer: https://go.dev/dl")
            self._run([go, "install", package], {"GOBIN": str(folder)})

        self._once(home, build)
        return home / name

    def _once(self, home: Path, build: Callable[[Path], None]) -> None:
        """Build a folder, unless it is there; one that was broken off is built again."""
        stamp = home.with_name(f"{home.name}.done")
        if stamp.exists():
            return
        shutil.rmtree(home, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        print(f"installing {home} …", file=sys.stderr)
        build(home)
        stamp.touch()

    def _run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        done = subprocess.run(
            command,
            env=os.environ | dict(env or {}),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
            raise RivalUnavailable(f"{' '.join(command)} failed: {' / '.join(said)}")
