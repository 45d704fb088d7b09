"""The check before a release: licences, and reports of pip-audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from requirements import release_check
from requirements.release_check import (
    ALLOWED,
    audit,
    audit_faults,
    is_allowed,
    licence_faults,
    licence_of,
    main,
    pinned,
)

LOCKS = Path(__file__).parents[2] / "requirements"


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("", False),
        ("Apache-2.0 OR GPL-2.0-only", True),
        ("GPL-2.0-only OR Apache-2.0", True),
        ("Apache-2.0 AND GPL-2.0-only", False),
        ("GPL-2.0-only AND MIT OR BSD-2-Clause", True),
        ("(MIT OR GPL-2.0-only) AND BSD-3-Clause", True),
        ("MIT AND (GPL-2.0-only OR AGPL-3.0-only)", False),
        ("BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("MIT MIT", False),
        ("(MIT", False),
        ("MIT OR", True),
        ("MIT AND", False),
    ],
)
def test_a_licence_is_allowed_if_a_choice_of_it_is(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) is allowed


@pytest.mark.parametrize(
    ("fields", "classifiers", "licence"),
    [
        (
            {"License-Expression": "MIT", "License": "other"},
            ["License :: OSI Approved :: X"],
            "MIT",
        ),
        ({"License": "MIT"}, ["License :: OSI Approved :: BSD License"], "BSD-3-Clause"),
        ({}, ["License :: OSI Approved :: MIT License", "Typing :: Typed"], "MIT"),
        ({"License": "MIT License\n\nCopyright (c) somebody"}, [], "MIT"),
        ({"License": "Apache 2.0"}, [], "Apache-2.0"),
        ({"License": "Proprietary"}, [], "Proprietary"),
        ({}, ["License :: DFSG approved"], ""),
        ({}, [], ""),
    ],
)
def test_the_licence_that_a_package_states(
    fields: dict[str, str], classifiers: list[str], licence: str
) -> None:
    assert licence_of(fields, classifiers) == licence


def test_a_lock_pins_names_for_this_platform() -> None:
    lock = (
        "argon2-cffi==25.1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
        "colorama==0.4.6 ; sys_platform == 'no such system' \\\n    --hash=sha256:22\n"
    )
    assert [each.name for each in pinned(lock)] == ["argon2-cffi"]


def test_everything_that_the_base_lock_pins_has_an_allowed_licence() -> None:
    names = [each.name for each in pinned((LOCKS / "base.lock").read_text())]
    assert len(names) > 40
    assert licence_faults(names) == []


def test_what_is_not_installed_or_not_allowed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = licence_faults(["no-such-package-at-all"])
    assert "not installed" in fault
    monkeypatch.setattr(release_check, "ALLOWED", ALLOWED - {"BSD-3-Clause"})
    assert licence_faults(["pyzmq", "msgpack", "uvicorn", "rich"])[-1] == "uvicorn: BSD-3-Clause"


KNOWN: dict[str, Any] = {
    "name": "a",
    "version": "1",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "X-2", "fix_versions": []}],
}
UNASKED: dict[str, Any] = {"name": "b", "skip_reason": "not found"}


def test_what_is_known_and_what_was_not_asked_are_faults() -> None:
    assert audit_faults({"dependencies": [{"name": "c", "version": "2", "vulns": []}]}) == []
    faults = audit_faults({"dependencies": [KNOWN, UNASKED]})
    assert faults[:2] == ["a 1: PYSEC-1, mended in 1.1", "a 1: X-2, mended in no version"]
    assert "nothing was learned of 1 of 2 packages" in faults[2]
    assert "pypi.org" in faults[2]


def program(path: Path, text: str) -> Path:
    """A program in place of pip-audit."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


def test_an_audit_that_does_not_end_is_a_fault_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "base.lock"
    lock.write_text("pyzmq==27 \\\n    --hash=sha256:00\n")
    silent = program(tmp_path / "silent", "echo 'no route to host' >&2; exit 1")
    monkeypatch.setattr(release_check, "AUDIT", silent)
    assert audit(lock) == [
        "pip-audit did not end: no route to host. It needs https://pypi.org/pypi"
    ]
    assert main([str(lock)]) == 1
    assert "advisories: base.lock" in capsys.readouterr().err
    good = '{"dependencies": [{"name": "pyzmq", "version": "27", "vulns": []}]}'
    # The report goes where `--output` says.
    found = program(tmp_path / "good", f"printf '%s' '{good}' > \"$8\"")
    monkeypatch.setattr(release_check, "AUDIT", found)
    assert main([str(lock)]) == 0
    assert "nothing known" in capsys.readouterr().out
