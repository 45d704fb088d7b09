"""The cluster key file: made once, private, refused when others may read it."""

import stat
from pathlib import Path

import pytest

from logboom.deploy.cluster_key import ensure_key, read_key
from logboom.wire.errors import StartError


def test_a_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = ensure_key(tmp_path / "sub" / "cluster.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = read_key(path)
    assert len(key) == 64
    assert read_key(ensure_key(path)) == key
    assert read_key(ensure_key(tmp_path / "other.key")) != key


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = ensure_key(tmp_path / "cluster.key")
    path.chmod(0o640)
    with pytest.raises(StartError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize(
    ("content", "said"), [(b"short\n", "shorter"), (b"\xff" * 64, "no cluster key file")]
)
def test_what_is_no_key_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "cluster.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StartError, match=said):
        read_key(path)


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file"):
        read_key(tmp_path / "cluster.key")
    with pytest.raises(StartError, match="cluster_key_file"):
        read_key("")
