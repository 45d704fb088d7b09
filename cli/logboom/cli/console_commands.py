"""`logboom console`: the web console of a cluster."""

from __future__ import annotations

import getpass
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from cyclopts import App, Parameter

from logboom.cli.cluster_address import destination_of
from logboom.cli.connection import found_key
from logboom.cli.output import note, show
from logboom.cli.parameters import OperatorServers, Output
from logboom.wire.credentials_file import read_credentials
from logboom.wire.endpoints import listen_fault
from logboom.wire.errors import AlreadyExists, InvalidRequest, StartError, UnknownResource
from logboom.wire.private_files import restrict_umask

NEEDED: Final = ("argon2", "itsdangerous", "jinja2", "prometheus_client", "starlette", "uvicorn")
DEFAULT_LISTEN: Final = "127.0.0.1:8080"
DEFAULT_AUDIT: Final = Path("~/.logboom/console")

DEFAULT_VIEWERS: Final = Path("~/.logboom/console/viewers.toml")
T = TypeVar("T")

ViewersPath: TypeAlias = Annotated[
    Path, Parameter(name="--viewers", help="The file of the console's viewers, of mode 0600.")
]
ViewerName: TypeAlias = Annotated[str, Parameter(help="The name of the viewer.")]
PasswordFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        help="A file of mode 0600 whose first line is the password; - is standard input. By default it "
        "is asked for."
    ),
]

app = App(name="console")
viewer = App(name="viewer", help="Who may sign in to the console: add, list, password, remove.")
app.command(viewer)


@app.default
def console(
    *,
    listen: Annotated[str, Parameter(name=["--listen", "-l"])] = DEFAULT_LISTEN,
    read_only: Annotated[bool, Parameter(negative="")] = False,
    metrics: Annotated[bool, Parameter(negative="")] = False,
    host: Annotated[list[str] | None, Parameter(name="--host", negative="")] = None,
    viewers: ViewersPath = DEFAULT_VIEWERS,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    proxy: str = "",
    audit_folder: Path = DEFAULT_AUDIT,
    servers: OperatorServers = None,
) -> None:
    """Serve the web console until Ctrl-C.

    It speaks to the cluster as any user does: as the one of your credentials file. Whatever is done
    in it is written to the audit log of the console, with the viewer, and to that of the cluster.
    Once there are viewers, every browser has to sign in; off this machine, and behind a proxy, it does
    not start without.

    For example:

        logboom console
        logboom console --listen 127.0.0.1:9090 --read-only
        logboom console viewer add alice
        logboom console --listen 0.0.0.0:8443 --host boom.example.com --tls-cert boom.pem --tls-key boom.key

    Parameters
    ----------
    listen
        Where browsers find it, host:port. Off this machine it needs viewers, who sign in.
    read_only
        Refuse everything that changes the cluster.
    metrics
        Serve the metrics of topics, groups and subscriptions at /metrics too, as `logboom exporter` does;
        Prometheus need not sign in.
    host
        A name under which browsers reach it, beside localhost and addresses; several times for
        several.
    tls_cert
        A certificate with its chain, PEM: the console then speaks HTTPS.
    tls_key
        Its key, PEM.
    proxy
        The address of a reverse proxy in front of it, whose X-Forwarded-For and -Proto are believed. It
        needs viewers, who sign in.
    audit_folder
        The folder of its audit log, audit.log.
    """
    check_console_installed()
    # Imported here: the rest of the command line works without the extra.
    from logboom.console.server import ConsoleServer
    from logboom.console.site import ConsoleSettings
    from logboom.console.viewers_file import ViewersFile

    if (tls_cert is None) != (tls_key is None):
        raise InvalidRequest("--tls-cert and --tls-key belong together: give both")
    restrict_umask()
    destination = destination_of(servers)
    name, port = split_listen(listen)
    settings = ConsoleSettings(
        host=name,
        port=port,
        read_only=read_only,
        metrics=metrics,
        allowed_hosts=frozenset(each.lower() for each in host or ()),
        server_options=()
        if servers is None or servers.servers is None
        else ("-s", servers.servers),
        tls_cert="" if tls_cert is None else str(tls_cert),
        tls_key="" if tls_key is None else str(tls_key),
        proxy=proxy,
    )
    book = ViewersFile(viewers.expanduser())
    server = ConsoleServer(
        settings,
        destination.endpoints,
        destination.file,
        audit_folder.expanduser(),
        book if book.viewers else None,
        found_key(servers),
    )
    note(f"the console of {','.join(destination.endpoints)} is at {server.url}")
    if book.viewers:
        note(f"Viewers sign in: {', '.join(sorted(book.viewers))}.")
    if metrics:
        note(f"metrics at {server.url}metrics, for whoever reaches it")
    if read_only:
        note("It is read-only: nothing can be changed in it.")
    note("Ctrl-C ends it.")
    server.run()


@viewer.command(name="add")
def add_viewer(
    name: Annotated[str, Parameter(help="1 to 64 of A-Z a-z 0-9 . _ @ -")],
    *,
    read_only: Annotated[bool, Parameter(negative="")] = False,
    credentials: Annotated[Path | None, Parameter(name="--credentials")] = None,
    password_file: PasswordFile = None,
    viewers: ViewersPath = DEFAULT_VIEWERS,
) -> None:
    """Add a viewer, who signs in with a password. A console that runs knows it at once.

    The password is asked for twice on the terminal, and kept as its Argon2 hash in a file of mode 0600.
    What a viewer does in the console, the cluster allows or refuses to the console's user, or to the
    viewer's own with --credentials.

    For example:

        logboom console viewer add alice
        logboom console viewer add guest --read-only --password-file guest.txt
        logboom console viewer add bob --credentials /etc/logboom/bob.toml

    Parameters
    ----------
    read_only
        It may look at everything that its user may see, and change nothing.
    credentials
        A credentials file of the viewer's own (`logboom user create`), with which the console asks the
        cluster for it.
    """
    check_console_installed()
    from logboom.console.passwords import hash_password
    from logboom.console.viewer_records import ViewerRecord, check_viewer_name
    from logboom.console.viewers_file import read_viewers, write_viewers

    check_viewer_name(name)
    path = viewers.expanduser()
    known = read_viewers(path)
    if name in known:
        raise AlreadyExists(
            f"there is a viewer {name}: give it a new password with `logboom console viewer password "
            f"{name}`, or remove it first",
        )
    own = ""
    if credentials is not None:
        read_credentials(credentials.expanduser())
        own = str(credentials.expanduser().absolute())
    record = ViewerRecord(hash_password(_new_password(name, password_file)), read_only, own)
    write_viewers(path, known | {name: record})
    note(f"added viewer {name} in {path}")


@viewer.command(name="password")
def set_password(
    name: ViewerName,
    *,
    password_file: PasswordFile = None,
    viewers: ViewersPath = DEFAULT_VIEWERS,
) -> None:
    """Give a viewer a new password. It must sign in again everywhere.

    For example:

        logboom console viewer password alice
    """
    check_console_installed()
    from logboom.console.passwords import hash_password
    from logboom.console.viewers_file import read_viewers, write_viewers

    path = viewers.expanduser()
    known = read_viewers(path)
    record = _known_viewer(known, name, path)
    hashed = hash_password(_new_password(name, password_file))
    write_viewers(path, known | {name: msgspec.structs.replace(record, password=hashed)})
    note(f"{name} has a new password")


@viewer.command(name="list")
def list_viewers(*, viewers: ViewersPath = DEFAULT_VIEWERS, output: Output = "table") -> None:
    """List the viewers.

    For example:

        logboom console viewer list -o json
    """
    check_console_installed()
    from logboom.console.viewers_file import read_viewers

    rows = [
        {
            "viewer": name,
            "may": "look" if record.read_only else "look and act",
            "credentials": record.credentials or None,
        }
        for name, record in sorted(read_viewers(viewers.expanduser()).items())
    ]
    show(rows, ["viewer", "may", "credentials"], output)


@viewer.command(name="remove")
def remove_viewer(name: ViewerName, *, viewers: ViewersPath = DEFAULT_VIEWERS) -> None:
    """Remove a viewer. A console that runs signs it out within a second.

    For example:

        logboom console viewer remove guest
    """
    check_console_installed()
    from logboom.console.viewers_file import read_viewers, write_viewers

    path = viewers.expanduser()
    known = read_viewers(path)
    _known_viewer(known, name, path)
    write_viewers(path, {each: record for each, record in known.items() if each != name})
    note(f"removed viewer {name}")


def _known_viewer(known: Mapping[str, T], name: str, path: Path) -> T:
    """Return a viewer.

    Raises:
        UnknownResource: there is none of this name.
    """
    if name not in known:
        there_are = f"there are {', '.join(sorted(known))}" if known else "there are none"
        raise UnknownResource(f"no viewer {name!r} in {path}: {there_are}", "UNKNOWN_USER")
    return known[name]


def _new_password(name: str, file: Path | None) -> str:
    """Return the password in a file, or the one that is typed twice.

    Raises:
        InvalidRequest: the two differ, none is typed, or there is neither a file nor a terminal.
        StartError: the file is no text, or others can read it.
    """
    if file is not None:
        try:
            return _read_password(file)
        except UnicodeDecodeError:
            where = "standard input" if str(file) == "-" else file
            raise StartError(
                f"the password in {where} is no text: write it there in UTF-8"
            ) from None
    if not sys.stdin.isatty():
        raise InvalidRequest(
            "there is no terminal to ask for the password: say --password-file FILE"
        )
    try:
        first = getpass.getpass(f"Password of {name}: ")
        again = getpass.getpass("The same again: ")
    except EOFError:
        raise InvalidRequest("no password was typed: nothing was changed") from None
    if again != first:
        raise InvalidRequest("the two passwords differ: nothing was changed")
    return first


def _read_password(file: Path) -> str:
    """Return the first line of a file, or of standard input."""
    if str(file) == "-":
        return sys.stdin.readline().rstrip("\r\n")
    if file.stat().st_mode & 0o077:
        raise StartError(f"others may read {file}: chmod 600 {file}")
    return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")


def check_console_installed() -> None:
    """Refuse where the extra `[console]` is missing.

    Raises:
        StartError: a package is missing; the text says how to install it.
    """
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        raise StartError("the console needs its extra: pip install 'logboom[console]'")


def split_listen(text: str) -> tuple[str, int]:
    """Return the host and the port of 127.0.0.1:8080, [::1]:8080 or 8080.

    Raises:
        InvalidRequest: it is none of these.
    """
    host, _, port = text.rpartition(":")
    host = host or "127.0.0.1"
    if listen_fault(f"{host}:{port}") is not None:
        raise InvalidRequest(f"--listen {text}: write it as {DEFAULT_LISTEN}")
    return host.strip("[]"), int(port)
