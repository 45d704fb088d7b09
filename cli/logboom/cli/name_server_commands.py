"""`logboom name-server`: the members of the Raft group, and the replacement of a lost one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from logboom.cli.catch_up_bar import bar, commit_index, percent
from logboom.cli.cluster_address import destination_of
from logboom.cli.confirmation import confirmed
from logboom.cli.connection import connect_to, open_client, open_node_client, operators_key
from logboom.cli.local_cluster import known_folders
from logboom.cli.output import note, show
from logboom.cli.parameters import Confirmed, KeyFile, NameServer, Output, Servers
from logboom.cli.progress_bar import progress
from logboom.client import Client
from logboom.deploy.config_files import load
from logboom.deploy.detached import folder_of, forget_node
from logboom.deploy.node_client import NodeClient
from logboom.deploy.polling import ask_until
from logboom.wire.errors import InvalidRequest, Unavailable
from logboom.wire.messages import StatsResult
from logboom.wire.private_files import restrict_umask
from logboom.wire.sockets import check_endpoint

app = App(name="name-server", help="The group of name servers: list, add, remove, recover.")

ASK_S: Final = 1.0
PAUSE_S: Final = 0.2

Wait = Annotated[float, Parameter(name=["--wait", "-w"])]


@app.command(name="list")
def list_name_servers(*, servers: Servers = None, output: Output = "table") -> None:
    """List the name servers: who answers, who leads, how far each has come.

    For example:

        logboom name-server list
    """
    destination = destination_of(servers)
    with connect_to(destination) as boom:
        members = boom.admin.name_servers()
    with open_node_client(destination) as node_client:
        node_client.learn(members)
        stats = node_client.stats([member.endpoint for member in members], ASK_S)
    commit = commit_index(stats.values())
    rows = [
        _row(member.id, member.endpoint, stats.get(member.endpoint), commit) for member in members
    ]
    show(rows, ["name_server", "state", "endpoint", "role", "caught_up"], output)


def _row(name: str, endpoint: str, stats: StatsResult | None, commit: int) -> dict[str, Any]:
    share = None if stats is None else percent(stats.counters, commit)
    return {
        "name_server": name,
        "state": "down" if stats is None else "up",
        "endpoint": endpoint,
        "role": None if stats is None else stats.counters.get("raft_role"),
        "caught_up": bar(share),
        "caught_up_percent": share,
        "applied_index": None if stats is None else stats.counters.get("raft_applied_index"),
    }


@app.command
def add(
    name: NameServer,
    endpoint: str,
    raft_endpoint: str,
    *,
    wait: Wait = 60.0,
    key_file: KeyFile = None,
    servers: Servers = None,
) -> None:
    """Let a new name server into the group, and wait until it has caught up.

    Start it first, with an empty folder and an id that was never used. Its config file lists in
    `name_servers` the members that it joins, without itself. `logboom cluster up` and `down` leave
    it to you, also on their machine.

        logboom name-server add name-4 10.0.0.4:7701 10.0.0.4:7721

    Parameters
    ----------
    endpoint
        Its endpoint for clients and brokers, host:port.
    raft_endpoint
        Its endpoint for the other name servers, host:port.
    wait
        Seconds that it may take to catch up.
    """
    endpoint, raft_endpoint = check_endpoint(endpoint), check_endpoint(raft_endpoint)
    key = operators_key(key_file, servers)
    destination = destination_of(servers)
    with (
        connect_to(destination, cluster_key=key) as boom,
        open_node_client(destination) as node_client,
    ):
        # The leader asks it first, since a member that does not run would only weaken the group.
        boom.admin.add_name_server(name, endpoint, raft_endpoint)
        _wait_caught_up(boom, node_client, name, endpoint, wait)
        members = {member.endpoint for member in boom.admin.name_servers()}
    note(f"{name} is in the group and has caught up")
    if folder_of(members, known_folders()) is not None:
        note(f"`logboom cluster up` does not start {name}: start it again as you did now")


def _wait_caught_up(
    boom: Client, node_client: NodeClient, name: str, endpoint: str, wait: float
) -> None:
    members = boom.admin.name_servers()
    node_client.learn(members)
    goal = commit_index(node_client.stats([member.endpoint for member in members], ASK_S).values())
    with progress(f"{name} catches up", goal) as shown:

        def look() -> int:
            stats = node_client.stats([endpoint], ASK_S).get(endpoint)
            applied = 0 if stats is None else int(stats.counters.get("raft_applied_index", 0))
            shown.to(min(applied, goal))
            return applied

        applied = ask_until(look, lambda applied: applied >= goal, wait, PAUSE_S)
    if applied < goal:
        text = f"{name} is in the group, but has applied {applied} of {goal} entries"
        raise Unavailable(f"{text} after {wait:.0f} s: look at its log")


@app.command
def remove(
    name: NameServer, *, yes: Confirmed = False, key_file: KeyFile = None, servers: Servers = None
) -> None:
    """Take a name server out of the group for good; its id is never used again.

    Use this if its disk is lost or its journal is damaged. The others must have a majority. One of
    a cluster on this machine is not started again; its folder stays.

        logboom name-server remove name-2 --yes
    """
    key = operators_key(key_file, servers)
    refusal = f"{name} could never come back: say --yes to remove it"
    question = f"Remove {name} from the group for good?"
    if not (yes or confirmed(question, refusal, "nothing was removed")):
        return
    with open_client(servers, cluster_key=key) as boom:
        known = {member.id: member.endpoint for member in boom.admin.name_servers()}
        if name not in known:
            raise InvalidRequest(f"no name server {name!r}: there are {', '.join(known)}")
        boom.admin.remove_name_server(name)
        left = [member.id for member in boom.admin.name_servers()]
    folder = forget_node(name, known[name], known.values(), known_folders())
    text = f"removed {name}; the group is now {', '.join(left)}"
    if folder is not None:
        text += f". Its folder {folder} is needed no more: delete it when you like"
    note(text)


@app.command
def recover(
    configs: list[Path],
    /,
    *,
    restored: Annotated[
        bool,
        Parameter(
            negative="",
            help="The folders were restored from a copy, so that even a majority may lack the newest.",
        ),
    ] = False,
    yes: Confirmed = False,
    output: Output = "table",
) -> None:
    """Let one survivor go on alone when a majority of the name servers is lost for good.

    Stop every name server of the group first. Of the survivors whose config files are given, the
    one with the longest journal becomes the whole group. What only the lost ones knew is lost:
    topics, offsets, decisions. None of the others may ever start again on its folder.

    Name servers that were restored from a copy would give numbers out again that brokers and clients
    know. So let one of them go on alone, with --restored, and add the others anew.

        logboom name-server recover /etc/logboom/name.toml          # says how far it goes
        logboom name-server recover /etc/logboom/name.toml --yes
        logboom name-server recover /etc/logboom/name.toml --restored --yes

    Parameters
    ----------
    configs
        One or more config files of survivors whose folders are on this machine.
    """
    # Imported late: only this command needs the packages of a node.
    from logboom.metadata.config import NameServerConfig
    from logboom.metadata.server import examine_stopped, go_on_alone

    restrict_umask()
    found = {config: load(config, NameServerConfig) for config in configs}
    survivors = {config: examine_stopped(each) for config, each in found.items()}
    rows = [
        {
            "name_server": survivor.name,
            "last_term": survivor.last_term,
            "last_index": survivor.last_index,
            "members": ", ".join(survivor.members),
        }
        for survivor in survivors.values()
    ]
    show(rows, ["name_server", "last_term", "last_index", "members"], output)
    config, best = max(survivors.items(), key=lambda pair: pair[1])
    names = {survivor.name for survivor in survivors.values()}
    if not restored and 2 * len(names & set(best.members)) > len(best.members):
        text = f"{len(names)} of {len(best.members)} name servers are here, a majority"
        raise InvalidRequest(
            f"{text}: start them, there is nothing to recover. If their folders were restored from a "
            "copy, say --restored"
        )
    others = [member for member in best.members if member != best.name]
    lost = ", ".join(others) or f"{best.name}'s former folder"
    note(
        f"WARNING: {best.name} becomes the whole group. What only {lost} knew is lost, "
        "acknowledged or not. Never start them again on their folders: they would be a second "
        "cluster that takes the same brokers. A survivor elsewhere whose last_term, then "
        "last_index, is greater is the one to recover instead."
    )
    refusal = f"this cannot be undone: say --yes to let {best.name} go on alone"
    question = f"Are {lost} lost for good, and shall {best.name} go on alone?"
    if not (yes or confirmed(question, refusal, "nothing was changed")):
        return
    gone = go_on_alone(found[config])
    out = f"; {', '.join(gone)} are out of it for good" if gone else ""
    note(
        f"{best.name} is the whole group{out}. Start {best.name}, see that `logboom doctor` is content, and add new name servers under new "
        "ids with `logboom name-server add`."
    )
