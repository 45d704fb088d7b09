"""What a request says: the path with its parameters, and the values of a form; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from logboom.wire.errors import InvalidRequest

MAX_FIELDS: Final = 2_000
"""Fields of a query or form; more are refused."""
MAX_DIGITS: Final = 20
"""Digits of a number, its sign included: as many as 64 bits hold. More are refused."""


class FormValues:
    """Values by name, each several times if it was sent so."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    @classmethod
    def parse(cls, encoded: str) -> FormValues:
        """Read application/x-www-form-urlencoded text.

        Raises:
            InvalidRequest: it has too many fields.
        """
        try:
            return cls(parse_qsl(encoded, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError as error:
            raise InvalidRequest(f"the form cannot be read: {error}") from None

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        """Return the last value of a name, without blanks around it."""
        values = self._values.get(name)
        return values[-1].strip() if values else default

    def raw(self, name: str) -> str:
        """Return the last value of a name as it was typed, with line ends of \\n alone."""
        values = self._values.get(name)
        return values[-1].replace("\r\n", "\n") if values else ""

    def all(self, name: str) -> list[str]:
        """Return every value of a name."""
        return list(self._values.get(name, ()))

    def flag(self, name: str) -> bool:
        """Return True if a box is ticked."""
        return self.text(name) in ("on", "yes", "1", "true")

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number.

        Raises:
            InvalidRequest: the value is none, or is missing and there is no default.
        """
        said = self.text(name)
        if not said and default is not None:
            return default
        if len(said) > MAX_DIGITS:
            raise InvalidRequest(f"{name}: a number of {len(said)} digits is too large")
        try:
            return int(said)
        except ValueError:
            raise InvalidRequest(f"{name}: {said!r} is not a whole number") from None

    def pairs(self) -> list[tuple[str, str]]:
        """Return all values with their names."""
        return [(name, value) for name, values in self._values.items() for value in values]

    def changed(self, changes: Mapping[str, str | None]) -> FormValues:
        """Return these values with others; None removes a name."""
        kept = [(name, value) for name, value in self.pairs() if name not in changes]
        return FormValues(
            kept + [(name, value) for name, value in changes.items() if value is not None]
        )


class PageQuery:
    """The URL of a page: its path and its parameters. The state of each table is in it."""

    __slots__ = ("path", "values")

    def __init__(self, path: str, values: FormValues | str = "") -> None:
        self.path = path
        """As it is shown in links, percent-encoded."""
        self.values = FormValues.parse(values) if isinstance(values, str) else values

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter, or the default if it is not given."""
        return self.values.text(name, default)

    def number(self, name: str, default: int) -> int:
        """Return a parameter that is a whole number, or the default if it is anything else: an old
        link still leads somewhere."""
        try:
            return self.values.number(name, default)
        except InvalidRequest:
            return default

    def url(self, **changes: str | int | None) -> str:
        """Return the link to the same page with other parameters; None or "" removes one. A dot in
        a name is written as two underscores."""
        texts = {
            name.replace("__", "."): None if value in (None, "") else str(value)
            for name, value in changes.items()
        }
        return link(self.path, self.values.changed(texts).pairs())


def link(path: str, pairs: Iterable[tuple[str, str]] | Mapping[str, str] = ()) -> str:
    """Return a link to a path, which is percent-encoded already, with parameters."""
    encoded = urlencode(list(pairs.items()) if isinstance(pairs, Mapping) else list(pairs))
    return f"{path}?{encoded}" if encoded else path


def path_of(*parts: object) -> str:
    """Return a path of parts, each percent-encoded: path_of("topics", "%DLQ%billing")."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def is_local(url: str) -> bool:
    """True if a link leads to a page of this console, and nowhere else."""
    return (
        url.startswith("/") and not url.startswith("//") and "\\" not in url and url.isprintable()
    )
