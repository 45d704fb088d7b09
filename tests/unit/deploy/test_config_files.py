"""Config files: what is written is read back, and every mistake is one line with its mend."""

from pathlib import Path

import msgspec
import pytest

from logboom.deploy.config_files import load, write
from logboom.wire.errors import StartError


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table in a list."""

    id: str
    port: int


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every kind of value that a node's config has."""

    id: str
    data: str = ""
    listen: str = "127.0.0.1:1"
    follower_reads: bool = False
    memory_bytes: int = 1
    percent: float = 5.0
    members: list[Inner] = msgspec.field(default_factory=list)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "node.toml"
    members = [{"id": 'a "quoted" \\ name', "port": 1}, {"id": "ü\n", "port": 2}]
    write(
        path,
        {
            "id": "broker-1",
            "data": tmp_path / "data",
            "listen": None,
            "follower_reads": True,
            "percent": 2.5,
            "members": members,
        },
        "a comment",
    )
    assert load(path, Settings) == Settings(
        id="broker-1",
        data=str(tmp_path / "data"),
        follower_reads=True,
        percent=2.5,
        members=[Inner('a "quoted" \\ name', 1), Inner("ü\n", 2)],
    )


def test_a_relative_path_starts_at_the_files_folder(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('id = "a"\ndata = "store"\n')
    assert load(path, Settings).data == str(tmp_path / "store")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('id = "a"\nlisten_on = "x"', "unknown key 'listen_on'; did you mean 'listen'?"),
        ('id = "a"\nzzz = 1', "unknown key 'zzz'; known are id, data"),
        ("listen = 'x'", "missing required field `id`"),
        ('id = "a"\nmemory_bytes = "1G"', "`memory_bytes`"),
        ('id = "a"\nmembers = [{id = "x"}]', "`port`"),
        ("id = ", "not valid TOML"),
        (b"id = '\xff'", "not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(
    tmp_path: Path, content: str | bytes, said: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(StartError) as caught:
        load(path, Settings)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.code == "BAD_CONFIG"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file"):
        load(tmp_path / "none.toml", Settings)
    with pytest.raises(StartError, match="directory"):
        load(tmp_path, Settings)
