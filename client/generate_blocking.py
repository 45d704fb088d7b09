"""Generates the client for threads from the client for asyncio.

    python client/generate_blocking.py          # write the modules that are out of date
    python client/generate_blocking.py --check  # only name them; exit 1 if there are any

Each module of MODULES in `logboom.client.aio` becomes the module of the same name in
`logboom.client`. `async` and `await` are dropped, asyncio's names become those of threads, and the
words of docstrings follow. Greater differences are written by hand, in modules that both clients
have: `bridge`, `futures`, `producer`, `push_consumer` and `app`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = ROOT / "client" / "logboom" / "client"
MODULES: Final = (
    "admin",
    "admin_access",
    "admin_subscriptions",
    "app_base",
    "client",
    "consumer",
    "dead_letter_admin",
    "group_consumer",
    "lookout",
    "positioned_reader",
    "producer_base",
    "range_reader",
    "reader",
    "resource",
    "subscription_consumer",
    "transaction",
    "transactional_sender",
)
HEAD: Final = "# Generated from aio/{}.py by `make generate`: do not edit.\n"
RULES: Final = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # Code, and the code in docstrings.
        (r"\blogboom\.client\.aio\b", "logboom.client"),
        (r"\basync (def|for|with)\b", r"\1"),
        (r"\bawait\s+", ""),
        (r"\b__a(enter|exit|iter)__\b", r"__\1__"),
        (r"\bAsyncIterator\b", "Iterator"),
        # What opens with `await` or `async with` there is open here.
        (r"\bOpenContext\[(\w+)\]", r"\1"),
        (r"\bOpenContext\(", "("),
        (r"\bOpenContext, ", ""),
        # Words.
        (r"\b([Aa]ny number of|[Oo]ne|a) task(s?)( of one loop)?\b", r"\1 thread\2"),
    )
]


def generate(name: str) -> str:
    """Return the module for threads, formatted."""
    source = (TARGET / "aio" / f"{name}.py").read_text(encoding="utf-8")
    for pattern, replacement in RULES:
        source = pattern.sub(replacement, source)
    return _ruff("format", name, _ruff("check", name, HEAD.format(name) + source))


def _ruff(command: str, name: str, source: str) -> str:
    """Sort imports, drop those that are not used any longer, and format."""
    chosen = ["--select=I,F401", "--fix", "--quiet"] if command == "check" else []
    words = [sys.executable, "-m", "ruff", command, *chosen]
    words += [f"--stdin-filename={TARGET / name}.py", "-"]
    done = subprocess.run(words, input=source, capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout


def find_stale() -> dict[Path, str]:
    """Return the files that are not what their source makes of them, with what they should be."""
    wanted = {TARGET / f"{name}.py": generate(name) for name in MODULES}
    return {
        path: text
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def main(words: list[str]) -> int:
    """Write what is out of date, or with --check name it."""
    stale = find_stale()
    for path, text in stale.items():
        if "--check" in words:
            print(f"{path.relative_to(ROOT)} is out of date: run `make generate`")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} written")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
