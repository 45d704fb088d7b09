"""Signatures of the pipeline's jobs, read from their source.

The jobs import PySpark, which is large and optional, so their commands cannot import them for
`--help`. This module reads what the commands need: names, types, defaults, and the help, which
is the entry of a parameter in its function's docstring, or the docstring of a field.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

JOBS: Final = "logboom.pipeline.jobs"


@dataclass(frozen=True, slots=True)
class JobParameter:
    """A parameter of a job's function, or a field of one of its dataclasses."""

    name: str
    type: str
    """The annotation as it is written."""
    default: Any
    """`inspect.Parameter.empty` if it is required."""
    help: str
    fields: tuple[JobParameter, ...] = ()
    """The fields, if the type is a dataclass of the job's module."""


@cache
def job_parameters(module: str, function: str) -> tuple[JobParameter, ...]:
    """Return the parameters of a job's function in their order."""
    tree = ast.parse(files(JOBS).joinpath(f"{module}.py").read_text("utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    (found,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function
    )
    told = _arguments(ast.get_docstring(found) or "")
    arguments = found.args
    without = len(arguments.args) - len(arguments.defaults)
    defaults = [None] * without + arguments.defaults + arguments.kw_defaults
    parameters = []
    for argument, default in zip(arguments.args + arguments.kwonlyargs, defaults, strict=True):
        written = ast.unparse(argument.annotation) if argument.annotation else ""
        own = classes.get(written)
        parameters.append(
            JobParameter(
                argument.arg,
                written,
                _literal(default),
                told.get(argument.arg, ""),
                () if own is None else tuple(_fields(own)),
            )
        )
    return tuple(parameters)


def _fields(node: ast.ClassDef) -> list[JobParameter]:
    """Return the fields of a dataclass. The string after a field is its help."""
    found = []
    for field, behind in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = ""
            if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
                text = " ".join(str(behind.value.value).split())
            written = ast.unparse(field.annotation)
            found.append(JobParameter(field.target.id, written, _literal(field.value), text))
    return found


def _literal(default: ast.expr | None) -> Any:
    return inspect.Parameter.empty if default is None else ast.literal_eval(default)


def _arguments(docstring: str) -> dict[str, str]:
    """Return the texts by name from the `Args:` of a docstring."""
    _, _, text = docstring.partition("Args:\n")
    text = re.split(r"\n(?=\S)", text)[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n      .*)*)", text, re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in entries}
