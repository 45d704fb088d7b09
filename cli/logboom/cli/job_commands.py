"""Commands that are generated from the signatures of the pipeline's jobs.

A function decorated with `job_command` becomes a command. Its parameters are those of the function
itself, and those of its job that it does not supply. `PARAMETERS` has the parameters that
jobs share or that need another form on a command line. All others follow from their types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_type_hints

from cyclopts import Parameter

from logboom.cli.cluster_address import destination_of
from logboom.cli.job_signatures import JOBS, JobParameter, job_parameters
from logboom.cli.options import moment, names, whole_path
from logboom.cli.parameters import Output, QueueNumbers, Servers
from logboom.cli.pipeline_runs import (
    checkpoint_of,
    rows_bar,
    source_of,
    spark_for,
    target_of,
    tell,
    trigger,
)
from logboom.client.written_values import queue_numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REQUIRED: Final = inspect.Parameter.empty

AtOnce: TypeAlias = Annotated[
    int,
    Parameter(
        name="--at-once",
        help="At most this many messages in a micro-batch. By default enrich reads 256 MiB at once "
        "and the other jobs everything there is. With dedup and window a limit has a price: "
        "messages of a queue that is behind the others in time then count as late.",
    ),
]
Checkpoint: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--checkpoint",
        help="The folder that records the progress; by default one below .logboom/pipeline.",
    ),
]
Continuous: TypeAlias = Annotated[
    bool, Parameter(name="--continuous", negative="", help="Run until Ctrl-C.")
]
Delivery: TypeAlias = Annotated[
    Literal["exactly-once", "at-least-once"],
    Parameter(
        name="--delivery",
        help="exactly-once: each micro-batch is one transaction; at-least-once is cheaper, but "
        "after a failure some messages are written twice.",
    ),
]
Every: TypeAlias = Annotated[
    str,
    Parameter(
        name="--every",
        help='With --continuous: how often the job looks for new messages, such as "10 seconds".',
    ),
]
From: TypeAlias = Annotated[
    str,
    Parameter(
        name="--from", help="The first message time: 2026-11-21T10:00:00Z, or ms since 1970."
    ),
]
Master: TypeAlias = Annotated[
    str,
    Parameter(
        name=["--master", "-m"],
        env_var="SPARK_MASTER",
        help="Where Spark runs: local[*] by default, or spark://host:7077.",
    ),
]
Queues: TypeAlias = Annotated[
    int,
    Parameter(name="--queues", help="Create the topic with this many queues if it does not exist."),
]
Report: TypeAlias = Annotated[Output, Parameter(help="table, or json: the whole report.")]
SkipLost: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--skip-lost",
        negative="",
        help="Continue where messages to be read no longer exist: retention was faster, or the "
        "topic was created again.",
    ),
]
Start: TypeAlias = Annotated[
    str,
    Parameter(
        name="--start",
        help="Where a new job begins: earliest (default), latest, group:NAME, or JSON by topic and "
        "queue. A job that has a checkpoint continues from there.",
    ),
]
Target: TypeAlias = Annotated[
    str,
    Parameter(name=["--to", "-t"], help="The topic to write to, which has to exist (or --queues)."),
]
Until: TypeAlias = Annotated[
    str, Parameter(name="--until", help="The first message time that is left out.")
]

Given: TypeAlias = Mapping[str, Any]
"""The values of a command's parameters, by name."""
Shown: TypeAlias = tuple[str, Any, Any]
"""A parameter of a command: name, type, default."""

PARAMETERS: Final[dict[str, tuple[Shown, ...]]] = {
    "spark": (),
    "source": (
        ("start", Start, ""),
        ("at_once", AtOnce, 0),
        ("skip_lost", SkipLost, False),
        ("servers", Servers, None),
    ),
    "target": (("to", Target, REQUIRED), ("queues", Queues, 0), ("servers", Servers, None)),
    "servers": (("servers", Servers, None),),
    "every": (("continuous", Continuous, False), ("every", Every, "")),
    "on_rows": (),
    "queues": (("queue", QueueNumbers, None),),
    "since_ms": (("from_", From, ""),),
    "until_ms": (("until", Until, ""),),
}
"""The parameters of a command for each of these parameters of a job."""

READERS: Final[dict[str, Callable[[str, Given], Any]]] = {
    "source": lambda job, given: source_of(
        given["topics"] if "topics" in given else given["topic"],
        given["servers"],
        given["start"],
        given["at_once"],
        skip_lost=given["skip_lost"],
    ),
    "target": lambda job, given: target_of(
        given["to"], given["servers"], given["queues"], given.get("delivery", "exactly-once")
    ),
    "folder": lambda job, given: whole_path(given["folder"] if "folder" in given else given["to"]),
    "checkpoint": lambda job, given: checkpoint_of(
        given["checkpoint"], job, given["topic"], given["to"]
    ),
    "servers": lambda job, given: destination_of(given["servers"]).text,
    "every": lambda job, given: trigger(given["every"], continuous=given["continuous"]),
    "queues": lambda job, given: tuple(queue_numbers(given["queue"]) or ()),
    "since_ms": lambda job, given: moment(given["from_"], "--from"),
    "until_ms": lambda job, given: moment(given["until"], "--until"),
}
"""How the value of a job's parameter is read from the command's values."""

TYPES: Final = {"bool": bool, "int": int, "Path | None": Path | None}
"""Types of parameters that are not text."""
SINGULAR: Final = {"keys": "key", "measures": "measure"}
"""Lists whose option is named after one of their items."""


class Job:
    """One call of a job's command."""

    def __init__(self, command: JobCommand, given: Given) -> None:
        self.name = command.name
        self.given = given
        self._command = command
        self._spark: SparkSession | None = None
        if "continuous" in given:
            trigger(given["every"], continuous=given["continuous"])

    @contextmanager
    def spark(self) -> Iterator[tuple[Any, SparkSession]]:
        """Yield the job's module and a session, which lasts as long as the block."""
        with spark_for(self.name, self.given["master"]) as self._spark:
            yield self._module, self._spark

    @property
    def _module(self) -> Any:
        return import_module(f"{JOBS}.{self._command.module}")

    def value(self, parameter: str) -> Any:
        """Return the value of one of the job's parameters."""
        (found,) = (each for each in self._command.parameters if each.name == parameter)
        return self._value(found, {})

    def _value(self, parameter: JobParameter, supplied: Given) -> Any:
        name, written = parameter.name, parameter.type
        if name in supplied:
            return supplied[name]
        if parameter.fields:
            fields = {each.name: self._value(each, supplied) for each in parameter.fields}
            return getattr(self._module, written)(**fields)
        if parameter.type == "Path | None":
            return self.given[name] and whole_path(self.given[name])
        if name in READERS:
            return READERS[name](self.name, self.given)
        value = self.given[SINGULAR.get(name, name)]
        if written == "Sequence[str]":
            return names(value)
        return tuple(names(value)) if written == "tuple[str, ...]" else value

    def run(self, function: str = "", **supplied: Any) -> Any:
        """Call the job's function, or another one of its module, and return what it returns.

        Args:
            supplied: what the command supplies itself, by parameter or by field of one.
        """
        parameters = job_parameters(self._command.module, function or self._command.function)
        with rows_bar(self.name) as bar:
            supplied = {"spark": self._spark, "on_rows": bar.to, **supplied}
            arguments = {each.name: self._value(each, supplied) for each in parameters}
            return getattr(self._module, function or self._command.function)(**arguments)

    def report(self, run: Any, **more: Any) -> None:
        """Print what a run did."""
        tell({**asdict(run), **more}, self.given["output"])


class JobCommand:
    """A command whose signature is read only when it is called or asked for help."""

    def __init__(
        self,
        function: Callable[..., int | None],
        job: str,
        supplies: tuple[str, ...],
    ) -> None:
        self.name = self.__name__ = function.__name__
        self.module, _, self.function = job.partition(".")
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__annotations__: dict[str, Any] = {}
        self._called = function
        self._supplies = {*supplies, "on_rows"}

    @property
    def parameters(self) -> tuple[JobParameter, ...]:
        """The parameters of the job."""
        return job_parameters(self.module, self.function)

    @property
    def __signature__(self) -> inspect.Signature:
        shown = self._own()
        known = {parameter.name for parameter in shown}
        extra = [
            each
            for parameter in self.parameters
            if parameter.name not in known
            for each in self._shown(parameter)
        ]
        extra += [("master", Master, ""), ("output", Report, "table")]
        for name, hint, default in extra:
            if name not in known:
                known.add(name)
                kind = inspect.Parameter.KEYWORD_ONLY
                shown.append(inspect.Parameter(name, kind, default=default, annotation=hint))
        last = ("master", "servers", "output")
        return inspect.Signature(sorted(shown, key=lambda each: (each.kind, each.name in last)))

    def _own(self) -> list[inspect.Parameter]:
        hints = get_type_hints(self._called, include_extras=True)
        parameters = list(inspect.signature(self._called).parameters.values())[1:]
        return [each.replace(annotation=hints[each.name]) for each in parameters]

    def _shown(self, parameter: JobParameter) -> list[Shown]:
        """Return the command's parameters for a parameter of the job."""
        if parameter.name in self._supplies:
            return []
        if parameter.fields:
            return [each for field in parameter.fields for each in self._shown(field)]
        if parameter.name in PARAMETERS:
            return list(PARAMETERS[parameter.name])
        if parameter.type == "Path" and parameter.name == "checkpoint":
            return [("checkpoint", Checkpoint, None)]
        name, default = SINGULAR.get(parameter.name, parameter.name), parameter.default
        text = parameter.help[:1].upper() + parameter.help[1:]
        if name == "folder":
            return [("to", Annotated[Path, Parameter(name=["--to", "-t"], help=text)], default)]
        if parameter.type in ("Sequence[str]", "tuple[str, ...]"):
            text += " Comma-separated."
            default = default if default is REQUIRED else ",".join(default)
        hint: Any = TYPES.get(parameter.type, str)
        negative = "" if hint is bool else None
        return [(name, Annotated[hint, Parameter(help=text, negative=negative)], default)]

    def __call__(self, *args: Any, **kwargs: Any) -> int | None:
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        return self._called(
            Job(self, given), **{each.name: given[each.name] for each in self._own()}
        )


def job_command(
    job: str, *, supplies: tuple[str, ...] = ()
) -> Callable[[Callable[..., int | None]], JobCommand]:
    """Make a command of a function, whose first parameter is the `Job`.

    Args:
        job: module and function of the job.
        supplies: parameters and fields whose values the function supplies itself.
    """
    return lambda function: JobCommand(function, job, supplies)
