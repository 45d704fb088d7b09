"""Options as Spark passes them: with names in any case, and values as text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from logboom.wire.errors import InvalidRequest

SERVERS: Final = ("servers", "kafka.bootstrap.servers", "bootstrap.servers")
CREDENTIALS: Final = "credentials"
"""The option with the path of a credentials file, which the driver and all executors can read."""
TIMEOUT_MS: Final = 60_000
"""How long to wait for brokers by default (`timeoutMs`)."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def check_options_came(given: Mapping[str, str], needed: str, query: str, rest: str = "…") -> None:
    """Refuse a read or write that no option came with: Spark keeps none of a table.

    Args:
        needed: the option that is required in addition to `servers`.
        query: how SQL states options.
        rest: what follows them.

    Raises:
        InvalidRequest: there are no options; the text says how tables get them.
    """
    if not any(name.lower() != "path" for name in given):
        text = (
            f"no option came, and servers and {needed} are needed. Of CREATE TABLE Spark keeps none: "
            "use CREATE TEMPORARY VIEW … USING logboom OPTIONS (…), or say them with each query, "
            f"{query} WITH (servers = '…', {needed} = '…') {rest}"
        )
        raise InvalidRequest(text)


class SparkOptions:
    """Options by lower-case name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def check_names(
        self, whose: str, known: Sequence[str], foreign: Collection[str], kind: str
    ) -> None:
        """Refuse what is not known, or has no meaning here.

        Args:
            whose: "source" or "sink".
            foreign: those of `known` that do not apply to `kind`.
        """
        by_name = {name.lower(): name for name in known}
        for name in self._given:
            if name not in by_name:
                close = difflib.get_close_matches(name, by_name, 1)
                hint = (
                    f"did you mean {by_name[close[0]]}?" if close else f"there are {listed(known)}"
                )
                raise InvalidRequest(f"the {whose} has no option {name!r}: {hint}")
            if by_name[name] in foreign:
                text = f"{by_name[name]} has no meaning for {kind}: leave it out"
                raise InvalidRequest(text)

    def says(self, name: str) -> bool:
        """Return True if an option was given, even if it is empty."""
        return name.lower() in self._given

    def text(self, name: str) -> str:
        """Return an option's text, or "" if it was not given."""
        return self._given.get(name.lower(), "").strip()

    def servers(self) -> str:
        """Return the cluster as `clients.client` takes it: nodes from any of the names of the
        option, and the credentials file."""
        found = [name for name in SERVERS if self.text(name)]
        file = self.text(CREDENTIALS)
        if len(found) > 1 or not (found or file):
            said = f"both {listed(found)}" if found else "none"
            text = "say with servers which nodes to ask (host:port, …)"
            raise InvalidRequest(f"{text}, or with credentials who you are, not {said}")
        nodes = self.text(found[0]) if found else ""
        if file and "@" in nodes:
            raise InvalidRequest(
                f"two credentials files: leave out {CREDENTIALS}, or the @ of servers"
            )
        return f"{nodes}@{file}" if file else nodes

    def word(self, name: str, words: Sequence[str]) -> str:
        """Return one of some words, by default the first."""
        text = self.text(name).lower() or words[0]
        if text not in words:
            raise InvalidRequest(f"{name} is {' or '.join(words)}, not {text!r}")
        return text

    def number(self, name: str) -> int:
        """Return a number from 1, or 0 if it was not given."""
        text = self.text(name)
        if not text and not self.says(name):
            return 0
        if not text.isdecimal() or int(text) < 1:
            raise InvalidRequest(f"{name} is a number from 1, not {text!r}")
        return int(text)

    def truth(self, name: str, *, default: bool) -> bool:
        """Return a truth value, written true or false."""
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise InvalidRequest(f"{name} is true or false, not {text!r}")
        return default if not text else text == "true"

    def duration_ms(self, name: str, default: int) -> int:
        """Return a duration such as 15m or 500ms."""
        text = self.text(name)
        if not text:
            return default
        match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
        if match is None:
            raise InvalidRequest(f"{name} is a duration such as 30s or 15m, not {text!r}")
        return int(match[1]) * _UNITS_MS[match[2]]


def listed(names: Sequence[str]) -> str:
    """Return names in the form of a sentence."""
    return ", ".join(names)
