"""What pages and actions of the console are made of, pure.

A subject (topics, groups …) is a module in `routes/`. It has loaders, which ask the cluster; it
calls pure builders in `pages/`; and it lists its routes and actions in a `Subject`, which
`routes/site_map.py` collects. docs/internals/console.md tells the conventions.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from logboom.client.aio import Client
from logboom.console.cluster_history import ClusterHistory
from logboom.console.consumer_survey import ConsumerHistory, ConsumerSurvey
from logboom.console.job_states import JobState, JobWork
from logboom.console.viewers import Viewer
from logboom.console.widgets.data_table import TableModel
from logboom.console.widgets.page_query import FormValues, PageQuery, path_of

T = TypeVar("T")
FieldKind: TypeAlias = Literal[
    "text", "number", "select", "checkbox", "textarea", "password", "hidden"
]


class ConsumerSource(Protocol):
    """All groups and subscriptions, surveyed together however many look at them."""

    @property
    def history(self) -> ConsumerHistory:
        """The surveys of the last half hour."""

    async def survey(self) -> ConsumerSurvey:
        """Return the newest survey.

        Raises:
            LogboomError: the cluster does not answer.
        """


class JobSource(Protocol):
    """Work of actions that takes longer than a request may."""

    def start(self, title: str, owner: str, total: int, work: JobWork) -> JobState:
        """Begin some work; `work` gets a function that tells how many are done."""

    def of(self, owner: str) -> list[JobState]:
        """Return the newest work for an owner, the newest first, work that has ended included."""

    def stop(self, number: int) -> bool:
        """End some work; return False if it has ended before."""


class ClusterAccess(Protocol):
    """The cluster, as one user sees it."""

    @property
    def boom(self) -> Client:
        """A client that acts as this user."""

    @property
    def history(self) -> ClusterHistory:
        """Samples of the last minutes."""

    @property
    def consumers(self) -> ConsumerSource:
        """Surveys of all groups and subscriptions."""

    @property
    def jobs(self) -> JobSource:
        """Work that goes on after the request that began it."""

    async def cached(
        self,
        key: str,
        make: Callable[[], Awaitable[T]],
        max_age_s: float = 2.0,
        stale_s: float = 0.0,
    ) -> T:
        """Return what `make` returned at most so long ago for this key, whoever asked: ten viewers
        cost one. An error is not kept.

        Args:
            stale_s: up to this age the last answer is returned at once, and asked for anew in the
                background. What an action changes is never returned as it was.
        """

    async def together(self, calls: Sequence[Awaitable[T]]) -> list[T]:
        """Wait for several questions at once, and return their answers in order."""

    async def pause(self, seconds: float) -> None:
        """Wait, between two pieces of a stream."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request for a page, or of an action."""

    viewer: Viewer
    query: PageQuery
    cluster: ClusterAccess
    now_ms: int
    parts: Mapping[str, str] = field(default_factory=dict)
    """The variable parts of the path, decoded."""
    read_only: bool = False
    """True if this viewer may not act here."""


Loader: TypeAlias = Callable[[PageRequest], Awaitable[object]]
"""Asks the cluster and returns the model of a page."""


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page: where it is, how its model is made, and what renders it.

    Every `TableModel` that is a field of the model is also given as CSV and JSON, by the parameters
    `format` and `table` (its name; "" is the main one).
    """

    path: str
    """Such as /topics/{topic}."""
    load: Loader
    template: str
    """In templates/; it gets the model as `page`, and a `SiteView` as `site`."""


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """What a loader returns in the place of a model: a file to be saved, whatever is in it."""

    data: bytes
    name: str


Streamer: TypeAlias = Callable[[PageRequest], AsyncIterator["StreamedPiece"]]


@dataclass(frozen=True, slots=True)
class StreamedPiece:
    """What a stream sends next: a model that a template renders, or a comment that keeps the
    connection open."""

    model: object = None
    template: str = ""
    id: str = ""
    """What the browser sends back after a broken connection, as `Last-Event-ID`, which is the
    parameter `after` of the next request."""


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """A stream of server-sent events."""

    path: str
    stream: Streamer


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of an action's form. A hidden one comes from the link that leads to the form."""

    name: str
    label: str = ""
    kind: FieldKind = "text"
    default: str = ""
    hint: str = ""
    required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    """Of a select: value and label."""
    placeholder: str = ""
    rows: int = 8
    """Lines of a textarea."""


@dataclass(frozen=True, slots=True)
class ActionDone:
    """What an action did."""

    message: str
    url: str = ""
    """The page to show next; "": the one that the viewer came from."""
    secret: str = ""
    """What is shown this once, and kept nowhere, such as the content of a new credentials file."""
    secret_name: str = ""
    """The name of the file that it is saved as."""


@dataclass(frozen=True, slots=True)
class ActionPreview:
    """What an action would do, shown before it asks."""

    facts: tuple[tuple[str, str], ...] = ()
    """Label and text."""
    table: TableModel | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class ConsoleAction:
    """Something that changes the cluster.

    The console shows its form if it has visible fields, then the command, the preview and the
    question, and acts after a second POST. `web_app.py` checks who may act, writes the audit log and
    tells the message; `run` raises a LogboomError if it fails.
    """

    name: str
    """noun.verb, such as topic.delete; its form is at /actions/topic.delete."""
    title: str
    button: str
    """What acts, as a verb with its object: Delete the topic."""
    command: Callable[[FormValues], Sequence[str]]
    """Returns the words after `logboom` of the command that does the same, --yes included."""
    question: Callable[[FormValues], str]
    run: Callable[[PageRequest, FormValues], Awaitable[ActionDone]]
    fields: tuple[FormField, ...] = ()
    prefill: Callable[[PageRequest, FormValues], Awaitable[Mapping[str, str]]] | None = None
    """Returns values of fields that the link does not give."""
    preview: Callable[[PageRequest, FormValues], Awaitable[ActionPreview]] | None = None
    danger: bool = False
    """True if something is lost by it."""

    @property
    def has_form(self) -> bool:
        """True if the viewer has something to fill in."""
        return any(each.kind != "hidden" for each in self.fields)


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A link of the menu."""

    title: str
    path: str
    place: int
    """Where in the menu; the smallest first."""


@dataclass(frozen=True, slots=True)
class Subject:
    """All that a module in `routes/` gives to the site."""

    pages: tuple[PageRoute, ...] = ()
    streams: tuple[StreamRoute, ...] = ()
    actions: tuple[ConsoleAction, ...] = ()
    navigation: tuple[NavigationEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteView:
    """What the layout of every page shows."""

    viewer: Viewer
    may_act: bool
    token: str
    """For forms, in the field `token`."""
    query: PageQuery
    navigation: Sequence[NavigationEntry]
    version: str
    can_sign_out: bool = False
    message: str = ""
    message_tone: str = ""
    now_ms: int = 0
    static_version: str = ""
    server_options: tuple[str, ...] = ()
    """What commands need to reach this cluster from here."""

    def is_current(self, entry: NavigationEntry) -> bool:
        """True if a page belongs to a link of the menu."""
        path = self.query.path
        return path == entry.path or (entry.path != "/" and path.startswith(f"{entry.path}/"))

    def action_url(self, name: str, **values: Any) -> str:
        """Return the link to the form of an action; the viewer comes back to this page."""
        pairs = {key: str(value) for key, value in values.items()} | {"back": self.query.url()}
        return PageQuery(path_of("actions", name), FormValues(pairs.items())).url()

    def command_text(self, words: Sequence[str]) -> str:
        """Return a command line as a shell takes it."""
        return command_text(words, self.server_options)


def command_text(words: Sequence[str], options: Sequence[str] = ()) -> str:
    """Return the command line of some words after `logboom`."""
    return shlex.join(["logboom", *words, *options])


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What the command line says of a console."""

    host: str
    port: int
    read_only: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    server_options: tuple[str, ...] = ()
    tls_cert: str = ""
    """Path of a certificate (PEM); "": the console speaks HTTP."""
    tls_key: str = ""
    proxy: str = ""
    """Address of a reverse proxy, which is believed about who asks it and by which scheme; "": none."""
    metrics: bool = False
    """True if the metrics of the cluster are served at /metrics, without a sign-in."""
