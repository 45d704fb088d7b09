"""Which frames may be written."""

from __future__ import annotations

import pytest

from logboom.pipeline.sink_columns import check_columns
from logboom.pipeline.sink_options import sink_options
from logboom.wire.errors import InvalidRequest

OPTIONS = sink_options({"servers": "a:1", "topic": "t"}, stream=True)


def test_a_column_may_have_a_name_in_any_case_once() -> None:
    check_columns([("VALUE", "binary"), ("Key", "string")], OPTIONS)
    for pair in (("value", "VALUE"), ("Value", "value")):
        with pytest.raises(InvalidRequest, match="there are two columns 'value'"):
            check_columns([(name, "binary") for name in pair], OPTIONS)
