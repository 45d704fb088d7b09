"""The topics of retries and dead letters, which hold copies of other topics' messages."""

from __future__ import annotations

from typing import Final

from logboom.wire.messages import MAX_BATCH_BYTES
from logboom.wire.names import is_reserved
from logboom.wire.view import TopicConfig, TopicView

_DEFAULT: Final = TopicConfig().max_message_bytes


def message_limit(topic: TopicView) -> int:
    """Return the size of the largest message that a topic takes, in bytes.

    An internal topic takes whatever the topics of its originals take, and the headers of a copy
    besides, unless an operator has set a limit other than the default.
    """
    limit = topic.config.max_message_bytes
    return MAX_BATCH_BYTES if limit == _DEFAULT and is_reserved(topic.name) else limit
