"""What Spark's errors become for the user of a job."""

from __future__ import annotations

import pytest

from logboom.pipeline.spark_errors import job_failed, no_session, reason

OURS = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "x.py", line 3, in get
    raise self.error
logboom.wire.errors.UnknownResource: topic 'x' does not exist: create it
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OURS, "topic 'x' does not exist: create it"),
        ("\n[PATH_NOT_FOUND] no such path\n more", "[PATH_NOT_FOUND] no such path"),
        ("", "ValueError('')"),
    ],
)
def test_an_error_is_one_line(text: str, said: str) -> None:
    assert reason(ValueError(text)) == said
    assert str(job_failed("archive", ValueError(text))) == f"archive: {said}"


def test_a_session_that_does_not_start_is_told_in_one_line() -> None:
    java = "An error occurred while calling None.Context.\n"
    java += ": org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat org.apache"
    assert str(no_session("x", ValueError(java))) == (
        "Spark did not start at master 'x': Could not parse Master URL: 'x'"
    )
    gone = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
    assert "it needs Java 17 or newer" in str(no_session("", ValueError(gone)))
