"""The file of the cluster key, which all nodes of a cluster share and nobody else may read.

It has one line. While the key is changed it has two: nodes prove themselves with the first key, and accept
both. A node reads the file again when it changes (docs/SECURITY.md has the steps).
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

from logboom.wire.errors import StartError
from logboom.wire.event_log import log_event
from logboom.wire.key_pair import SecretBytes
from logboom.wire.secret_files import read_secret

KEY_BYTES: Final = 32
MAX_KEYS: Final = 2
LOOK_S: Final = 1.0
"""Seconds between two looks at the file."""


def read_cluster_keys(source: Path | str) -> tuple[SecretBytes, ...]:
    """Return the keys in a file, or wherever else `read_secret` finds them: that in use, and the other.

    Raises:
        StartError: BAD_CONFIG; none is named, it cannot be read, others can read it, or a key is too
            short.
    """
    if not source:
        raise StartError("no cluster_key_file in the config: name the file all nodes share")
    content = read_secret(source, "the cluster key file", "copy it from another node")
    if not content.isascii():
        raise StartError(f"{source} is no cluster key file: copy it from another node")
    keys = tuple(map(SecretBytes, content.split()))
    if not keys or min(map(len, keys)) < KEY_BYTES:
        text = f"the key in {source} is shorter than {KEY_BYTES} characters: copy the whole file"
        raise StartError(text)
    if len(keys) > MAX_KEYS:
        raise StartError(f"{source} has more than {MAX_KEYS} keys: remove those of former changes")
    return keys


def key_mark(key: bytes) -> str:
    """Derive a mark that tells cluster keys apart without revealing them."""
    return hmac.new(key, b"data folder", hashlib.sha256).hexdigest()[:16]


class ClusterKeyFile:
    """The keys of a node that runs, followed as their file changes. Used by one thread."""

    def __init__(self, source: str, key: bytes) -> None:
        """Begin with a key; without a source it stays."""
        self.keys: tuple[bytes, ...] = (key,)
        self._source = source
        self._refused = ""
        """What the log has said of a file that cannot be used."""
        self._next_look = float("-inf")

    def has_changed(self, now: float) -> bool:
        """Look at the file if that is due; return True if `keys` are others than before."""
        if not self._source or now < self._next_look:
            return False
        self._next_look = now + LOOK_S
        try:
            found = read_cluster_keys(self._source)
        except StartError as error:
            if error.text != self._refused:
                self._refused = error.text
                log_event("cluster_key_refused", text=error.text)
            return False
        self._refused = ""
        if found == self.keys:
            return False
        self.keys = found
        log_event("cluster_key_changed", keys=[key_mark(key) for key in found])
        return True

    def figures(self) -> dict[str, str]:
        """Return the marks of the keys, for STATS."""
        used, *other = map(key_mark, self.keys)
        return {"cluster_key": used, "other_cluster_key": other[0] if other else ""}
