"""The pipeline's commands have the parameters of their jobs, and explain them without PySpark."""

import subprocess
import sys

import pytest

from logboom.cli.app import build
from logboom.cli.job_signatures import job_parameters

STREAM = {"--start", "--at-once", "--skip-lost", "--continuous", "--every", "--checkpoint"}
TARGET = {"--to", "--queues"}
ALL = {"--master", "--servers", "--credentials", "--output"}
OPTIONS = {
    "archive": ALL | STREAM | {"--topics", "--to", "--gather", "--audit"},
    "replay": ALL
    | TARGET
    | {"--folder", "--topic", "--from", "--until", "--offsets", "--queue", "--key", "--keys"}
    | {"--rate", "--keep-queues", "--checkpoint"},
    "enrich": ALL
    | STREAM
    | TARGET
    | {"--topic", "--schema", "--lookup", "--on", "--only-found", "--sql", "--table", "--delivery"},
    "dedup": ALL | STREAM | TARGET | {"--topic", "--by", "--within"},
    "window": ALL
    | STREAM
    | TARGET
    | {"--topic", "--to-topic", "--schema", "--width", "--slide", "--by", "--measure", "--time"}
    | {"--watermark"},
    "compact": ALL | TARGET | {"--topic", "--to-topic"},
    "dlq": ALL | {"--group", "--by", "--every", "--cause", "--topic", "--from", "--until"},
    "redrive": ALL
    | TARGET
    | {"--group", "--cause", "--topic", "--from", "--until", "--yes", "--checkpoint"},
}


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_has_the_options_of_its_job(command: str) -> None:
    arguments = build(["pipeline"])["pipeline"][command].assemble_argument_collection()
    # "*" is the address of the cluster, whose fields are options.
    assert {argument.name for argument in arguments} - {"*"} == OPTIONS[command]


def test_defaults_and_help_are_those_of_the_job() -> None:
    arguments = build(["pipeline"])["pipeline"]["window"].assemble_argument_collection()
    found = {each.name: (each.field_info.default, each.parameter.help) for each in arguments}
    (fields,) = (each.fields for each in job_parameters("window", "window") if each.fields)
    wanted = {each.name: (each.default, each.help) for each in fields}
    assert found["--width"] == wanted["width"]
    assert found["--measure"] == ("", f"{wanted['measures'][1]} Comma-separated.")


def test_help_does_not_import_pyspark() -> None:
    ask = (
        "import sys; from logboom.cli.app import run; code = run(['pipeline', 'window', '--help']); "
        "print('pyspark' in sys.modules, code)"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False 0"
