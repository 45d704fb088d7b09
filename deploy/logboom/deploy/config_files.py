"""Config files of nodes: TOML that is read into checked structs, and TOML written for new nodes.

The keys are the fields of the node's own config struct. Paths are taken from the file's folder.
Every error is one line that names the file, the key and the remedy.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from logboom.wire.errors import StartError
from logboom.wire.private_files import make_folder, write_private
from logboom.wire.secret_files import source_below

PATH_KEYS: Final = frozenset(
    {
        "audit_folder",
        "data",
        "cluster_key_file",
        "credentials_file",
        "metrics_tls_cert",
        "metrics_tls_key",
    }
)
"""Keys that hold a path; a relative one starts at the config file's folder. Those of secrets may name
other sources (`wire/secret_files.py`)."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

T = TypeVar("T", bound=msgspec.Struct)


def load(path: Path, kind: type[T]) -> T:
    """Read a config file into a struct of `kind`.

    Raises:
        StartError: BAD_CONFIG; the file cannot be read or is not TOML, it has an unknown key or
            lacks one, or a value has the wrong type or is out of range.
    """
    values = _read(path)
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in values:
        if key not in known:
            raise _mistake(path, f"unknown key {key!r}; {_suggestion(key, known)}")
    for key in PATH_KEYS & values.keys():
        if isinstance(values[key], str):
            values[key] = source_below(values[key], path.absolute().parent)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _mistake(path, str(error).replace("$.", "")) from None
    except ValueError as error:
        raise _mistake(path, str(error)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        text = f"cannot read config file {path} ({reason}): check the path and its permissions"
        raise StartError(text) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _mistake(path, f"not valid TOML ({error})") from None


def _mistake(path: Path, what: str) -> StartError:
    return StartError(f"config file {path}: {what} (docs/OPERATING.md lists every key)")


def _suggestion(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


def write(path: Path, values: Mapping[str, Any], comment: str = "") -> None:
    """Write a config file; None values are left out, nested lists of tables are allowed."""
    lines = [f"# {comment}"] if comment else []
    lines += [f"{key} = {_value(value)}" for key, value in values.items() if value is not None]
    make_folder(path.parent)
    write_private(path, ("\n".join(lines) + "\n").encode())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs: Iterable[str] = (f"{_key(key)} = {_value(inner)}" for key, inner in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    # A JSON string is a TOML basic string.
    return json.dumps(str(value))


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key)
