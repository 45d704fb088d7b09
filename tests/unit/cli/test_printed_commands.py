"""Every command that README, docs, refusals and help texts print is one that there is."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from cyclopts import MissingArgumentError

from logboom.cli.app import build

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PORTIONS = ("backup", "cli", "client", "deploy", "metadata", "nodes", "pipeline", "wire")
SOURCES = sorted(path for portion in PORTIONS for path in (ROOT / portion).rglob("*.py"))
SPOKEN = re.compile(r"`(logboom [^`]+)`", re.DOTALL)
"""In a sentence: it may leave out what must be said, and wrap."""
LINE = re.compile(r"^ *(?:[^|`#\n]*\| )?(logboom [a-z][^\n]*(?:(?<=\\)\n[^\n]*)*)", re.MULTILINE)
"""By itself on a line, maybe behind a pipe, maybe over several lines."""
FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^    [^\n]*\n)+", re.MULTILINE)


def words(command: str) -> list[str]:
    """The arguments behind `logboom`, without comments, pipes and what goes into files."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    for word in lexer:
        if word in {"|", ">", "<", "&&", ";"}:
            break
        found.append(word)
    return found[1:]


def blocks(text: str) -> Iterator[str]:
    """What stands apart as commands: fenced, or indented."""
    yield from (block for language, block in FENCED.findall(text) if language in ("", "sh"))
    yield from INDENTED.findall(FENCED.sub("", text))


def strings(source: Path) -> str:
    """All that a module can say: its docstrings, and what stands in quotes; `{}` for what is put in
    when it runs."""
    found: list[str] = []
    nodes: list[ast.AST] = [ast.parse(source.read_text("utf-8"))]
    while nodes:
        match nodes.pop():
            case ast.JoinedStr(values):
                found.append(
                    "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in values)
                )
            case ast.Constant(str(text)):
                found.append(text)
            case node:
                nodes += ast.iter_child_nodes(node)
    return "\n\n".join(found) + "\n"


def printed() -> Iterator[tuple[str, bool]]:
    """Commands, and whether each is complete."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for block in blocks(text):
            for command in LINE.findall(block):
                yield command, True
        for command in SPOKEN.findall(text):
            yield command, False
    for text in map(strings, SOURCES):
        for command in SPOKEN.findall(text):
            yield command, False
        for block in INDENTED.findall(text):
            for command in LINE.findall(block):
                yield command, True


def variants(command: str) -> list[str]:
    """`a b|c` names two commands."""
    *start, last = command.split()
    return [" ".join([*start, each]) for each in last.split("|")]


COMMANDS = {
    each: complete
    for command, complete in printed()
    for each in ([command] if complete else variants(" ".join(command.split())))
    # A place for something else, or a sentence.
    if not re.search(r"[{<…]", each)
}


app = cache(build)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command_is_one(command: str) -> None:
    try:
        app().parse_args(words(command), exit_on_error=False, print_error=False)
    except MissingArgumentError:
        assert not COMMANDS[command]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_installed_before_a_command_has_the_command(page: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        _, installed, after = block.partition("pip install 'logboom[")
        if installed and re.search("^ *logboom ", after, re.MULTILINE):
            assert "cli" in after.partition("]")[0].split(","), block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_public_key_is_quoted(page: Path) -> None:
    """It has characters that a shell takes for its own, and never a quote."""
    assert re.findall("--public-key [^'].*", page.read_text("utf-8")) == []


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 50
    assert COMMANDS["logboom group list"]
    assert sum(COMMANDS.values()) > 30
