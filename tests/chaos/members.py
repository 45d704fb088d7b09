"""A cluster whose name servers can be replaced by new members, as docs/OPERATING.md says."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from logboom.deploy import Cluster
from logboom.deploy.config_files import write
from logboom.deploy.process import NodeSpec
from tests.chaos.links import Links


def _settings(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


class ChangingCluster(Cluster):
    """A cluster that knows its name servers by their own config files."""

    def __init__(self, *numbers: Any, **settings: Any) -> None:
        """See `Cluster`."""
        super().__init__(*numbers, **settings)
        listed = _settings(self._layout.name_servers[0].config_path)["name_servers"]
        self.members: dict[str, dict[str, str]] = {member["id"]: member for member in listed}
        """Name server → where it is reached, as a config file tells others."""

    def put_in_place(self, lost: str, links: Links) -> dict[str, str]:
        """Put a new name server, not yet started, in the place of one that does not run.

        The files of the brokers name it instead of the lost one. Returns where it is reached.
        """
        used = [int(path.name.removeprefix("name-")) for path in self.data.glob("name-*")]
        name = f"name-{max(used) + 1}"
        old = _settings(self._layout.node(lost).config_path)
        listen, raft = self._ports.name_server(), self._ports.raft()
        joiner = {
            "id": name,
            "endpoint": links.front(name, listen),
            "raft_endpoint": links.front(name, raft),
        }
        self.members.pop(lost, None)
        others = [*self.members.values()]
        self.members[name] = joiner
        folder = self.data / name
        spec = NodeSpec(name, "name-server", folder, links.home(name, listen))
        write(
            spec.config_path,
            old
            | {
                "id": name,
                "listen": spec.endpoint,
                "raft_listen": links.home(name, raft),
                "data": spec.data_path,
                "name_servers": others,
            },
        )
        for broker in self._layout.brokers:
            servers = [member["endpoint"] for member in self.members.values()]
            write(broker.config_path, _settings(broker.config_path) | {"name_servers": servers})
        left = tuple(server for server in self._layout.name_servers if server.id != lost)
        self._layout = dataclasses.replace(self._layout, name_servers=(*left, spec))
        shutil.rmtree(self.data / lost / "data")
        return joiner

    def stranger(self, like: str, advertise: str) -> list[str]:
        """Write the file of one more broker, and return the command that would start it.

        Args:
            like: whose settings it has otherwise.
            advertise: where others reach it, as its file says.
        """
        folder = self.data / "strangers" / "broker-99"
        folder.mkdir(parents=True, exist_ok=True)
        spec = NodeSpec("broker-99", "broker", folder, self._ports.broker())
        old = _settings(self._layout.node(like).config_path)
        write(
            spec.config_path,
            {key: value for key, value in old.items() if key != "metrics_listen"}
            | {
                "id": spec.id,
                "listen": spec.endpoint,
                "advertise": advertise,
                "data": spec.data_path,
            },
        )
        node = [sys.executable, "-m", "logboom.deploy.node", spec.role]
        return [*node, "--config", str(spec.config_path)]
