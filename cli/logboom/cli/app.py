"""The command line: its commands, and the conversion of errors to one line and an exit code.

Exit codes: 0 success, 1 failure (the line on standard error has the error and a remedy), 2 an
invalid command line, 130 Ctrl-C, 141 the reader of our output closed the pipe, 143 SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import UnknownCommandError

from logboom import __version__
from logboom.wire.errors import LogboomError

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
TERMINATED: Final = 143

HELP: Final = """\
A replicated message broker that keeps what it acknowledged.

To try it in a single process: `logboom dev`. For a cluster on this machine: `logboom cluster up`.

    logboom topic create flights --queues 8
    echo "hello" | logboom produce flights
    logboom consume flights --exit
    logboom doctor

Commands connect to the nodes in `LOGBOOM_SERVERS` (or `--servers`), else to those in your credentials
file `LOGBOOM_CREDENTIALS` (or `--credentials`), else to the cluster in the folder `LOGBOOM_DATA`, else to
the one in `.logboom`, else to your only running cluster on this machine.
"""


COMMANDS: Final = {
    "cluster": "cluster_commands:app",
    "dev": "dev_command:dev",
    "node": "node_commands:app",
    "name-server": "name_server_commands:app",
    "config": "config_commands:app",
    "broker": "broker_commands:app",
    "queue": "queue_commands:app",
    "balance": "balance_commands:app",
    "connections": "connection_commands:app",
    "store": "store_commands:app",
    "topic": "topic_commands:app",
    "group": "group_commands:app",
    "subscription": "subscription_commands:app",
    "dlq": "dlq_commands:app",
    "backup": "backup_commands:app",
    "transaction": "transaction_commands:app",
    "user": "user_commands:app",
    "role": "role_commands:app",
    "acl": "acl_commands:app",
    "quota": "quota_commands:app",
    "produce": "produce_command:produce",
    "consume": "consume_command:consume",
    "message": "message_commands:app",
    "pipeline": "pipeline_commands:app",
    "bench": "bench_commands:app",
    "doctor": "doctor_command:doctor",
    "console": "console_commands:app",
    "top": "top_command:top",
    "exporter": "exporter_command:exporter",
    "generate": "generate_commands:app",
    "debug": "debug_commands:app",
}
"""The module and name of each command. A command is imported when it is called."""
OF_ALL: Final = ("--help", "-h", "--install-completion")
"""Arguments that need every command."""


def new_app(name: str, help_text: str | None = None) -> App:
    """Return an app without commands, for `run`."""
    return App(
        name=name,
        help=help_text,
        version=__version__,
        help_format="markdown",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        default_parameter=None,
    )


def build(words: Sequence[str] = ()) -> App:
    """Return the command with all its subcommands. Only those that `words` call are imported."""
    app = new_app("logboom", HELP)
    for name, where in COMMANDS.items():
        if words and words[0] not in OF_ALL:
            app.command(f"logboom.cli.{where}", name=name)
        else:
            module, _, command = where.partition(":")
            app.command(getattr(import_module(f"logboom.cli.{module}"), command), name=name)
    _register_completion(app)
    return app


def _register_completion(app: App) -> None:
    """Let `--install-completion` edit the shell's startup file, unless --output names another."""

    def install_completion(
        *,
        shell: Annotated[Literal["zsh", "bash", "fish"] | None, Parameter(name="--shell")] = None,
        output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    ) -> None:
        """Install shell completion.

        Parameters
        ----------
        shell
            The shell; by default that of the caller.
        output
            Write the script to this file, and change no other.
        """
        file = app.install_completion(shell=shell, output=output, add_to_startup=output is None)
        print(f"completion is in {file}", file=sys.stderr)

    app.command(install_completion, name="--install-completion")


class Terminated(BaseException):
    """SIGTERM was received: end as after Ctrl-C, so that our folders and processes are removed."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def run(arguments: Sequence[str], build_app: Callable[[Sequence[str]], App] = build) -> int:
    """Run one command line and return its exit code. `logboom node` handles signals itself."""
    signal.signal(signal.SIGTERM, _terminate)
    name = "logboom"
    try:
        app = build_app(arguments)
        name = app.name[0]
        result = app(list(arguments), exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        hint = _usage_hint(name, error)
        return _fail(f"{_one_line(str(error))}{hint}", USAGE)
    except LogboomError as error:
        return _fail(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except BrokenPipeError:
        # The reader is gone; the interpreter must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}:{where or ' check the path'}", FAILED)
    return result if isinstance(result, int) else 0


def _usage_hint(name: str, error: CycloptsError) -> str:
    chain = [] if isinstance(error, UnknownCommandError) else list(error.command_chain or ())
    return f" (see `{' '.join([name, *chain, '--help'])}`)"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _fail(text: str, code: int) -> int:
    print(f"logboom: {_one_line(text)}", file=sys.stderr)
    return code
