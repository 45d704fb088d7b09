"""Every number in every request and command that may be sent, and requests in which one is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import msgspec.inspect as kinds

from logboom.wire.base import WireMessage
from logboom.wire.frames import REQUESTS
from tests.unit.wire.largest_requests import alternatives, shortest, tag_of

EXTREMES: Final = (-(1 << 63), -1, 0, 1 << 31, 1 << 53, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
ELEMENT: Final = ""
"""In a path: an element of a list, or a value of a map."""
Path: TypeAlias = tuple[str | int, ...]
"""Names of fields, tags of commands, places in tuples and elements, from the request on."""


class Number(NamedTuple):
    """A number that a request has, also within a record, a list or a command of it."""

    request: type[WireMessage]
    path: Path

    @property
    def name(self) -> str:
        """As PROTOCOL.md names it: a command stands for the request that proposes it."""
        of_command = self.path[0] == "command"
        path = self.path[1:] if of_command else (tag_of(self.request), *self.path)
        return ".".join(str(step) for step in path if step != ELEMENT)

    @property
    def owner(self) -> str:
        """The request or command that has the number."""
        return self.name.partition(".")[0]

    def request_with(self, value: int, usual: Mapping[str, Any]) -> bytes:
        """The request with this number, and everything else as usual.

        Args:
            value: the number.
            usual: the values of fields, by name, or by request and name.
        """
        maker = _Maker(value, usual, self.owner)
        return msgspec.msgpack.encode(maker.make(kinds.type_info(self.request), self.path))


def numbers() -> Iterator[Number]:
    """All numbers of all requests."""
    for request in REQUESTS:
        for path in _paths(kinds.type_info(request)):
            yield Number(request, path)


def _paths(kind: kinds.Type, path: Path = ()) -> Iterator[Path]:
    for each in alternatives(kind):
        match each:
            case kinds.IntType():
                yield path
            case kinds.StructType():
                tag = (str(each.tag),) if each.tag is not None and path else ()
                for field in each.fields:
                    yield from _paths(field.type, (*path, *tag, field.name))
            case kinds.TupleType():
                for place, item in enumerate(each.item_types):
                    yield from _paths(item, (*path, place))
            case kinds.ListType():
                yield from _paths(each.item_type, (*path, ELEMENT))
            case kinds.DictType():
                yield from _paths(each.value_type, (*path, ELEMENT))


class _Maker(NamedTuple):
    value: int
    usual: Mapping[str, Any]
    owner: str

    def make(self, kind: kinds.Type, path: Path | None) -> Any:
        """A value of a kind, in which the path leads to the number; None: it has another place."""
        if path == ():
            return self.value
        choices = alternatives(kind)
        each = next(each for each in choices if not path or _leads(each, path))
        match each:
            case kinds.StructType():
                tag = [] if each.tag is None else [each.tag]
                if path and tag == [path[0]]:
                    path = path[1:]
                return [*tag, *(self._field(field, path) for field in each.fields)]
            case kinds.TupleType():
                items = enumerate(each.item_types)
                return [self.make(item, _behind(path, place)) for place, item in items]
            case kinds.ListType():
                return [self.make(each.item_type, _behind(path, ELEMENT))]
            case kinds.DictType():
                return {"x": self.make(each.value_type, _behind(path, ELEMENT))}
        return msgspec.msgpack.decode(shortest(each))

    def _field(self, field: kinds.Field, path: Path | None) -> Any:
        rest = _behind(path, field.name)
        if rest is None:
            for name in (f"{self.owner}.{field.name}", field.name):
                if name in self.usual:
                    return self.usual[name]
            if field.default_factory is not msgspec.NODEFAULT:
                return field.default_factory()
            if field.default is not msgspec.NODEFAULT:
                return msgspec.to_builtins(field.default, builtin_types=(bytes,))
        return self.make(field.type, rest)


def _leads(kind: kinds.Type, path: Path) -> bool:
    match kind:
        case kinds.StructType():
            return path[0] == kind.tag or path[0] in {field.name for field in kind.fields}
        case kinds.TupleType():
            return isinstance(path[0], int)
        case kinds.ListType() | kinds.DictType():
            return path[0] == ELEMENT
    return False


def _behind(path: Path | None, step: str | int) -> Path | None:
    return path[1:] if path and path[0] == step else None
