"""The credentials of the only administrator are lost: the way back of docs/SECURITY.md."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.config_files import write
from logboom.wire.credentials_file import read_credentials
from tests.integration.cli.command import logboom


def test_a_key_in_the_name_servers_files_makes_a_new_administrator(tmp_path: Path) -> None:
    with Cluster(name_servers=1, brokers=1, secure=True) as cluster:
        assert cluster.credentials is not None
        lost = cluster.credentials.rename(tmp_path / "lost.toml")
        file = tmp_path / "carol.toml"
        made = logboom("user", "key", "generate", "carol", "--file", str(file), cwd=tmp_path)
        assert made.code == 0, made.err
        public = read_credentials(file).key_pair.public
        assert public in made.out.decode()

        config = cluster.data / "name-1" / "node.toml"
        settings = tomllib.loads(config.read_text("utf-8"))
        settings["administrators"]["carol"] = public
        cluster.stop("name-1")
        write(config, settings)
        cluster.start("name-1", wait=False)

        with file.open("a", encoding="utf-8") as text:
            for server in read_credentials(lost).servers:
                text.write("\n[[servers]]\n")
                for name, value in msgspec.structs.asdict(server).items():
                    text.write(f'{name} = "{value}"\n')
        carol = {"LOGBOOM_CREDENTIALS": str(file)}
        with connect(file, timeout_s=60.0) as boom:
            assert {user.name for user in boom.admin.users()} >= {"admin", "carol"}
        # The lost key is all that this user has, so the user goes.
        done = logboom("user", "disable", "admin", also=carol, cwd=tmp_path)
        assert done.code == 0, done.err
        refused = logboom("topic", "list", also={"LOGBOOM_CREDENTIALS": str(lost)}, cwd=tmp_path)
        assert refused.code != 0
        done = logboom("topic", "create", "fresh", also=carol, cwd=tmp_path)
        assert done.code == 0, done.err

        # Once removed, a key that still stands in the file comes back with no restart.
        done = logboom("user", "delete", "admin", "--yes", also=carol, cwd=tmp_path)
        assert done.code == 0, done.err
        cluster.stop("name-1")
        cluster.start("name-1", wait=False)
        with connect(file, timeout_s=60.0) as boom:
            assert "admin" not in {user.name for user in boom.admin.users()}
