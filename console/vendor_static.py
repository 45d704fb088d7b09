"""Fetches the scripts of others that the console serves: `python console/vendor_static.py`.

Each is taken from its npm package, of the version below, by `npm pack`. Its version, licence and
SHA-256 are recorded in static/VENDORED.toml; a test compares the files with it. axe-core, which
tests use alone, is kept with the tests.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
STATIC = ROOT / "console/logboom/console/static"
TESTS = ROOT / "tests/data/browser"


@dataclass(frozen=True)
class VendoredPackage:
    """An npm package, and the files that are taken from it."""

    name: str
    version: str
    folder: Path
    files: dict[str, str]
    """Path in the package → name here."""


PACKAGES = (
    VendoredPackage(
        "htmx.org",
        "4.0.1",
        STATIC,
        {
            "dist/htmx.min.js": "vendored/htmx.min.js",
            "dist/ext/hx-sse.min.js": "vendored/hx-sse.min.js",
            "LICENSE": "vendored/htmx-LICENSE.txt",
        },
    ),
    VendoredPackage(
        "uplot",
        "1.6.32",
        STATIC,
        {
            "dist/uPlot.iife.min.js": "vendored/uPlot.iife.min.js",
            "dist/uPlot.min.css": "vendored/uPlot.min.css",
            "LICENSE": "vendored/uPlot-LICENSE.txt",
        },
    ),
    VendoredPackage(
        "axe-core",
        "4.14.1",
        TESTS,
        {"axe.min.js": "axe.min.js", "LICENSE": "axe-LICENSE.txt"},
    ),
)


def main() -> None:
    """Fetch all packages, and write the records."""
    records: dict[Path, list[str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for package in PACKAGES:
            records.setdefault(package.folder, []).extend(_fetch(package, Path(temporary)))
    for folder, lines in records.items():
        told = "# Written by console/vendor_static.py; a test compares the checksums.\n\n"
        (folder / "VENDORED.toml").write_text(told + "\n".join(lines), encoding="utf-8")


def _fetch(package: VendoredPackage, temporary: Path) -> list[str]:
    """Return the lines of the package's record."""
    words = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    packed = subprocess.run(words, cwd=temporary, check=True, capture_output=True, text=True)
    lines: list[str] = []
    with tarfile.open(temporary / packed.stdout.strip().splitlines()[-1]) as archive:

        def content(path: str) -> bytes:
            member = archive.extractfile(f"package/{path}")
            if member is None:
                raise SystemExit(f"{package.name} {package.version} has no {path}")
            return member.read()

        licence = json.loads(content("package.json"))["license"]
        for source, name in package.files.items():
            data = content(source)
            # What a file says of its map would make browsers ask for one that is not there.
            text = [line for line in data.splitlines() if not line.startswith(b"//# sourceMapping")]
            data = b"\n".join(text) + b"\n"
            target = package.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            lines += [
                "[[file]]",
                f'path = "{name}"',
                f'package = "{package.name}"',
                f'version = "{package.version}"',
                f'licence = "{licence}"',
                f'sha256 = "{hashlib.sha256(data).hexdigest()}"',
                "",
            ]
    return lines


if __name__ == "__main__":
    main()
