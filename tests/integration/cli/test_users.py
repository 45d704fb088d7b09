"""Users, roles and rules by the command line, at an open cluster, whose key the operator has."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.deploy import embedded
from logboom.wire.credentials_file import read_credentials
from tests.integration.cli.command import Done, complaint, logboom


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    data = tmp_path_factory.mktemp("users")
    with embedded(data=data / "node") as node:
        made = Operator(",".join(node.endpoints), data / "node" / "cluster.key", data)
        made.run("role", "create", "team")
        yield made


class Operator:
    """Somebody with the cluster key."""

    def __init__(self, servers: str, key: Path, folder: Path) -> None:
        self.servers = servers
        self.also = {"LOGBOOM_KEY_FILE": str(key)}
        self.folder = folder

    def run(self, *words: str) -> Done:
        """Run a command that must not fail."""
        done = self.try_(*words)
        assert done.code == 0, done.err
        return done

    def try_(self, *words: str) -> Done:
        """Run a command."""
        return logboom(*words, servers=self.servers, also=self.also, cwd=self.folder)

    def create(self, name: str, *words: str) -> Path:
        """Create a user, and return its credentials file."""
        self.run("user", "create", name, *words)
        return self.folder / f"{name}.toml"


def test_a_user_gets_a_file_that_only_its_owner_reads(operator: Operator) -> None:
    done = operator.run("user", "create", "alice", "--role", "team", "--end", "90d")
    file = operator.folder / "alice.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secret = tomllib.loads(file.read_text())["secret_key"]
    assert secret not in done.err + done.out.decode()
    found = operator.run("user", "describe", "alice", "-o", "json").json
    assert (found["state"], found["roles"]) == ("active", ["team"])
    (key,) = found["keys"]
    assert key["public_key"] == read_credentials(file).key_pair.public
    assert key["ends"] is not None
    rows = {row["name"]: row for row in operator.run("user", "list", "-o", "json").json}
    assert rows["alice"]["keys"] == 1
    roles = {row["name"]: row for row in operator.run("role", "list", "-o", "json").json}
    assert roles["team"]["users"] == ["alice"]


def test_no_file_is_overwritten_and_none_is_left_of_what_was_refused(operator: Operator) -> None:
    file = operator.create("bob")
    before = file.read_bytes()
    text = complaint(operator.try_("user", "create", "bob"))
    assert "bob.toml exists" in text
    assert file.read_bytes() == before
    other = operator.folder / "bob-again.toml"
    text = complaint(operator.try_("user", "create", "bob", "--file", str(other)))
    assert "exists already" in text
    assert not other.exists()
    text = complaint(operator.try_("user", "create", "carol", "--role", "no-such-role"))
    assert "no-such-role" in text
    assert not (operator.folder / "carol.toml").exists()


def test_keys_are_added_and_removed_but_the_last_one_stays(operator: Operator) -> None:
    operator.create("dora")
    operator.run("user", "key", "add", "dora", "--label", "2027")
    new = read_credentials(operator.folder / "dora-2027.toml").key_pair.public
    operator.run("user", "key", "remove", "dora", "first")
    found = operator.run("user", "describe", "dora", "-o", "json").json
    assert [key["public_key"] for key in found["keys"]] == [new]
    assert "only key" in complaint(operator.try_("user", "key", "remove", "dora", "2027"))
    assert "2027" in complaint(operator.try_("user", "key", "remove", "dora", "first"))


def test_a_key_that_was_made_elsewhere(operator: Operator) -> None:
    done = logboom("user", "key", "generate", "erik", cwd=operator.folder)
    assert done.code == 0, done.err
    public = done.out.decode().strip()
    credentials = read_credentials(operator.folder / "erik.toml")
    assert credentials.key_pair.public == public
    operator.run("user", "create", "erik", "--public-key", public)
    found = operator.run("user", "describe", "erik", "-o", "json").json
    assert found["keys"][0]["public_key"] == public
    text = complaint(operator.try_("user", "create", "eve", "--public-key", public))
    assert "erik" in text
    hyphened = "-" + "0" * 39
    operator.run("user", "create", "eva", "--public-key", hyphened)
    operator.run("user", "key", "add", "eva", "--label", "second", "--public-key", "-" + "1" * 39)
    found = operator.run("user", "describe", "eva", "-o", "json").json
    assert hyphened in {each["public_key"] for each in found["keys"]}


def test_disabling_enabling_deleting(operator: Operator) -> None:
    operator.create("finn")
    operator.run("user", "disable", "finn")
    assert operator.run("user", "describe", "finn", "-o", "json").json["state"] == "disabled"
    operator.run("user", "enable", "finn")
    assert operator.run("user", "describe", "finn", "-o", "json").json["state"] == "active"
    assert "--yes" in complaint(operator.try_("user", "delete", "finn"))
    operator.run("user", "delete", "finn", "--yes")
    assert "user 'finn' does not exist" in complaint(operator.try_("user", "describe", "finn"))


def test_rules_are_explained(operator: Operator) -> None:
    operator.create("gina")
    operator.run("role", "create", "readers")
    operator.run("role", "grant", "readers", "gina")
    operator.run("acl", "add", "role:readers", "allow", "read", "topic", "orders.*")
    operator.run("acl", "add", "user:gina", "deny", "read", "topic", "orders.salaries")

    def explain(*words: str) -> str:
        return operator.run("acl", "explain", "--user", "gina", *words).out.decode().strip()

    assert explain("read", "topic", "orders.eu") == (
        "allowed: role:readers has: allow read topic orders.*"
    )
    assert explain("read", "topic", "orders.salaries") == (
        "refused: user:gina has: deny read topic orders.salaries"
    )
    assert explain("write", "topic", "orders.eu") == "refused: no rule allows it"
    assert explain("admin", "cluster") == "refused: no rule allows it"
    asked = ("acl", "explain", "--user", "gina", "read", "topic", "orders.eu", "-o", "json")
    assert operator.run(*asked).json["rule"]["holder"] == "role:readers"
    rows = operator.run("acl", "list", "--user", "gina", "-o", "json").json
    assert [(row["holder"], row["effect"]) for row in rows] == [
        ("role:readers", "allow"),
        ("user:gina", "deny"),
    ]
    operator.run("acl", "remove", "user:gina", "deny", "read", "topic", "orders.salaries")
    assert explain("read", "topic", "orders.salaries").startswith("allowed")
    assert "gina" in complaint(operator.try_("role", "delete", "readers", "--yes"))
    operator.run("role", "revoke", "readers", "gina")
    operator.run("role", "delete", "readers", "--yes")
    assert explain("read", "topic", "orders.eu") == "refused: no rule allows it"


def test_limits_with_their_default(operator: Operator) -> None:
    operator.create("hugo")
    operator.run("quota", "default", "--connections", "100")
    operator.run("quota", "set", "hugo", "--produce", "10m", "--requests", "500")
    operator.run("quota", "set", "hugo", "--requests", "0")
    rows = {row["user"]: row for row in operator.run("quota", "show", "-o", "json").json}
    assert rows["(default)"]["connections"] == 100
    assert rows["hugo"]["produce_bytes_per_s"] == 10 << 20
    assert rows["hugo"]["requests_per_s"] == 0
    assert "10.0 MiB" in operator.run("quota", "show", "hugo").out.decode()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("user create a/b", "characters A-Z a-z 0-9"),
        ("user create ida --end soon", "write 90d"),
        ("user create ida --public-key short", "40 characters of Z85"),
        ("user create ida --label a/b", "key label"),
        ("role create a/b", "role name"),
        ("acl add team allow read topic t", "write role:team or user:team"),
        ("acl add role:team allow reed topic t", "read"),
        ("acl add role:team allow read queue t", "topic"),
        ("acl add role:team allow admin topic t", "use one of read, write"),
        ("acl add role:team allow read topic a*b", "ends with *"),
        ("acl add role:team allow read topic", "ends with *"),
        ("acl add role:nobody allow read topic t", "nobody"),
        ("acl explain --user nobody read topic t", "nobody"),
        ("acl list team", "write role:team"),
        ("quota set nobody --topics 1", "nobody"),
        ("quota set nobody", "--produce"),
        ("quota default --produce fast", "10g"),
        ("quota default --topics -1", "topics"),
    ],
)
def test_mistakes_are_told_with_the_remedy(operator: Operator, words: str, said: str) -> None:
    assert said in complaint(operator.try_(*words.split()))
    assert not (operator.folder / "ida.toml").exists()


def test_without_the_key_nobody_changes_users(operator: Operator) -> None:
    done = logboom("user", "list", servers=operator.servers)
    assert "--key-file" in complaint(done)


def test_a_file_that_others_can_read_is_not_used(operator: Operator) -> None:
    file = operator.create("jack")
    file.chmod(0o640)
    done = logboom("topic", "list", "--credentials", file)
    assert f"chmod 600 {file}" in complaint(done)
