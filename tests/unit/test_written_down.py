"""The docs hold what code refers to: each safety rule has its place, and every link leads somewhere."""

from __future__ import annotations

import ast
import builtins
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

from logboom.wire.metric_table import METRICS, PREFIX
from tests.test_tidy import ROOMS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
CODE = (
    "backup",
    "console",
    "bench",
    "cli",
    "client",
    "demo",
    "deploy",
    "metadata",
    "nodes",
    "pipeline",
    "tests",
    "wire",
)
SOURCES = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
RULE = re.compile(r"(?<![\w.%#/-])([QRGTWSA]\d{1,2}|K[1-6]|M[1-7])\b(?![\w.:-]*\d)")
PROMISE = re.compile(r"(?<![\w.%#/-])(P\d{1,2})\b")
HEADING = re.compile(r'^<a id="(\w+)"></a>\n### ([A-Z]\d+) \S', re.MULTILINE)
BREAK = re.compile(r"([QRGTWPSAKM]\d+)\b.*?:", re.DOTALL)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
FOREIGN = {"ErrorIfExists", "Transport"}
"""Names of other projects."""
MAX_SHORT_TEXT = 60
LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")


def cited(pattern: re.Pattern[str]) -> dict[str, str]:
    """Each number that the sources name, and one place that does."""
    found: dict[str, str] = {}
    for path in SOURCES:
        for match in pattern.finditer(path.read_text("utf-8")):
            found.setdefault(match[1], str(path.relative_to(ROOT)))
    return found


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`, by GitHub's rules."""
    text = FENCED.sub("", page.read_text("utf-8"))
    found = set(re.findall(r'<a id="([\w-]+)">', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(slug)
    return found


def breaks() -> dict[str, set[str]]:
    """Rule → the functions of the simulation that break it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "tests" / "sim").rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and [a.arg for a in node.args.args] == ["patch"]:
                rule = BREAK.match(ast.get_docstring(node) or "")
                if rule is not None:
                    found[rule[1]].add(node.name)
    return found


def sections() -> dict[str, str]:
    """Rule → what SAFETY.md says of it."""
    text = (DOCS / "SAFETY.md").read_text("utf-8")
    heads = list(HEADING.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return {head[2]: text[head.end() : end] for head, end in zip(heads, ends, strict=True)}


def test_every_rule_has_a_heading_and_an_anchor() -> None:
    text = (DOCS / "SAFETY.md").read_text("utf-8")
    assert all(anchor == rule.lower() for anchor, rule in HEADING.findall(text))
    assert len(re.findall("^### ", text, re.MULTILINE)) == len(sections())
    rules = cited(RULE)
    assert len(rules) > 30
    assert {rule: path for rule, path in rules.items() if rule not in sections()} == {}


def test_every_promise_is_in_the_table() -> None:
    text = (DOCS / "RELIABILITY.md").read_text("utf-8")
    promises = cited(PROMISE)
    assert "P10" in promises
    assert {p: path for p, path in promises.items() if f"\n| {p} |" not in text} == {}


@pytest.mark.parametrize("part", ["Rule.", "Why.", "Without it.", "Kept by", "Broken by"])
def test_every_rule_says(part: str) -> None:
    assert [rule for rule, text in sections().items() if f"**{part}**" not in text] == []


def test_every_break_is_named_beside_its_rule() -> None:
    known = sections()
    found = breaks()
    assert set(found) == set(known)
    missing = {(r, name) for r, names in found.items() for name in names if name not in known[r]}
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}"


def test_names_of_files_and_code_exist() -> None:
    """Files by their path or the end of it, CamelCase and snake_case names as words of the sources."""
    folders = [ROOT / each for each in (*CODE, "docs")]
    paths = [*folders, *(path for folder in folders for path in folder.rglob("*"))]
    files = {f"/{path.relative_to(ROOT)}" for path in paths}
    words = set(re.findall(r"\w+", "\n".join(path.read_text("utf-8") for path in SOURCES)))
    known = words | FOREIGN | {Path(file).stem for file in files}
    known |= {PREFIX + name for name in METRICS}
    missing = set()
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", FENCED.sub("", page.read_text("utf-8"))):
            found = True
            if re.fullmatch(r"[\w/-]+(?:\.py|\.c|/)", code):
                path = f"/{code.rstrip('/')}"
                portion = page.stem.partition("-")[0] if "/" not in code else ""
                begin = f"/{portion}/" if portion in CODE else "/"
                whole = f"/{code.partition('/')[0]}/logboom{path}"
                found = whole in files or any(
                    file.startswith(begin) and file.endswith(path) for file in files
                )
            elif re.fullmatch(r"[A-Z][a-z]+(?:[A-Z]\w*)+|_?[a-z]+(?:_[a-z0-9]+)+", code):
                found = code in known
            if not found:
                missing.add(f"{page.name}: {code}")
    assert missing == set()


def test_the_functions_of_jobs_exist() -> None:
    """`module.function` in the table of jobs is a function of a module in pipeline/jobs."""
    text = (DOCS / "PIPELINE.md").read_text("utf-8").split("## Jobs\n")[1]
    named = re.findall(r"`(\w+)\.(\w+)`", text.split("\n\n")[1])
    assert len(named) > 10
    jobs = {path.stem: path.read_text("utf-8") for path in SOURCES if path.parent.name == "jobs"}
    assert [each for each in named if f"\ndef {each[1]}(" not in jobs.get(each[0], "")] == []


def test_names_in_docstrings_and_comments_exist() -> None:
    """Backticked files, dotted names, CamelCase and snake_case: as names or short texts of the code."""
    names = {*dir(builtins), *FOREIGN}
    prose: list[tuple[str, str]] = []
    for path in SOURCES:
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.NAME:
                    names.add(token.string)
                elif token.type in (tokenize.STRING, tokenize.COMMENT):
                    prose.append((str(path.relative_to(ROOT)), token.string))
                    if token.type == tokenize.STRING and len(token.string) < MAX_SHORT_TEXT:
                        names.update(re.findall(r"\w+", token.string))
    stems = {path.stem for path in SOURCES}
    missing = set()
    for where, text in prose:
        for code in re.findall(r"`([^`\n]+)`", text):
            if re.fullmatch(r"[\w/]+\.py", code):
                found = any(str(path).endswith(f"/{code}") for path in SOURCES)
            elif re.fullmatch(r"[A-Z][a-z]+\w*|_?[a-z]+(_[a-z0-9]+)+|[A-Za-z_]\w*(\.\w+)+", code):
                found = set(code.split(".")) <= names | stems
            else:
                continue
            if not found:
                missing.add(f"{where}: {code}")
    assert missing == set()


def floors() -> dict[str, dict[str, int]]:
    """Portion → room → its floor, by the table of ARCHITECTURE.md."""
    text = (DOCS / "ARCHITECTURE.md").read_text("utf-8")
    lines = text[text.index("| floor |") :].split("\n\n")[0].splitlines()
    portions = re.findall(r"`(\w+)`", lines[0])
    found: dict[str, dict[str, int]] = {portion: {} for portion in portions}
    for line in lines[2:]:
        floor, *cells = line.strip("|").split("|")
        for portion, cell in zip(portions, cells, strict=True):
            found[portion].update(dict.fromkeys(re.findall(r"`(\w+)`", cell), int(floor)))
    return found


def test_the_table_of_floors_is_that_of_the_code() -> None:
    stated = {
        portion: {room: floor for floor, rooms in enumerate(lines) for room in rooms.split()}
        for portion, lines in ((each, text.strip().splitlines()) for each, text in ROOMS.items())
    }
    assert floors() == stated
