"""`make release-check`: known faults of what the lock files pin, and the licences of what is installed.

    python requirements/release_check.py [LOCK …]

A lock is checked against the advisories of PyPI by pip-audit. What it could not ask about counts as a fault,
because pip-audit itself ends well then. Licences are what packages say of themselves.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER: Final = Path(__file__).parent
AUDIT: Final = FOLDER.parent / ".release" / "bin" / "pip-audit"
ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",
        "PSF-2.0",
        "Python-2.0",
        "Zlib",
    }
)
"""Licences (SPDX) of what may be used: they ask for no more than notices, and MPL for changes of its own files."""
NAMES: Final[Mapping[str, str]] = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "http://www.apache.org/licenses/LICENSE-2.0": "Apache-2.0",
}
"""What older packages call a licence → SPDX."""
_CLASSIFIER: Final = "License :: OSI Approved :: "


def is_allowed(expression: str) -> bool:
    """Return True if an SPDX expression leaves a choice of allowed licences."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace(" WITH ", "-WITH-"))

    def either() -> bool:
        found = every()
        while tokens and tokens[0].upper() == "OR":
            tokens.pop(0)
            found = every() or found
        return found

    def every() -> bool:
        found = one()
        while tokens and tokens[0].upper() == "AND":
            tokens.pop(0)
            found = one() and found
        return found

    def one() -> bool:
        if not tokens:
            return False
        token = tokens.pop(0)
        if token != "(":
            return token in ALLOWED
        found = either()
        return tokens[:1] == [")"] and tokens.pop(0) == ")" and found

    found = either()
    return found and not tokens


def licence_of(package: Mapping[str, str], classifiers: Iterable[str]) -> str:
    """Return the licence that a package states, as an SPDX expression where it can be told; "" for none."""
    expression = package.get("License-Expression")
    if expression:
        return expression
    named = [each.removeprefix(_CLASSIFIER) for each in classifiers if each.startswith(_CLASSIFIER)]
    if not named:
        named = [line for line in (package.get("License") or "").splitlines()[:1] if line]
    return " AND ".join(NAMES.get(name, name) for name in named)


def pinned(lock: str) -> Iterator[Requirement]:
    """Yield what a lock file pins for this platform."""
    for line in lock.splitlines():
        if re.match(r"[A-Za-z0-9]", line):
            found = Requirement(line.rstrip(" \\"))
            if found.marker is None or found.marker.evaluate():
                yield found


def licence_faults(names: Iterable[str]) -> list[str]:
    """Return the packages without an allowed licence, each with why."""
    faults = []
    for name in sorted(set(names)):
        try:
            about = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            faults.append(f"{name} is not installed, so its licence is not known: make setup test")
            continue
        fields = {key: about[key] for key in ("License", "License-Expression") if key in about}
        licence = licence_of(fields, about.get_all("Classifier") or [])
        if not is_allowed(licence):
            faults.append(f"{name}: {licence or 'it states no licence'}")
    return faults


def audit_faults(report: Mapping[str, Any]) -> list[str]:
    """Return the known faults in a report of pip-audit, and what it did not audit."""
    faults = []
    unasked = 0
    for package in report["dependencies"]:
        unasked += "skip_reason" in package
        for known in package.get("vulns", ()):
            mended = ", ".join(known["fix_versions"]) or "no version"
            faults.append(
                f"{package['name']} {package['version']}: {known['id']}, mended in {mended}"
            )
    if unasked:
        faults.append(
            f"nothing was learned of {unasked} of {len(report['dependencies'])} packages: the advisories "
            "cannot be reached from here, or not through this index. Run it where https://pypi.org/pypi "
            "answers"
        )
    return faults


def audit(lock: Path) -> list[str]:
    """Run pip-audit on a lock file; return what it found."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off"]
        done = subprocess.run(
            [AUDIT, *options, "--format", "json", "--output", file, "--requirement", lock],
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
            return [f"pip-audit did not end: {said}. It needs https://pypi.org/pypi"]
        return audit_faults(report)


def main(arguments: Sequence[str]) -> int:
    """Check the given lock files, or all; return the exit code."""
    locks = [*map(Path, arguments)] or sorted(FOLDER.glob("*.lock"))
    # What only looks for faults is in an environment of its own, and is not shipped or built with.
    of_product = [lock for lock in locks if lock.name != "release.lock"]
    names = {
        canonicalize_name(each.name)
        for lock in of_product
        for each in pinned(lock.read_text(encoding="utf-8"))
    }
    faults = [f"licence: {each}" for each in licence_faults(names)]
    for lock in locks:
        faults += [f"advisories: {lock.name}: {each}" for each in audit(lock)]
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{len(names)} packages of {len(locks)} lock files: nothing known against them")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
