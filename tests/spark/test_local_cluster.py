"""A job from topic to topic with executors in processes of their own, as `local-cluster` starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logboom.client import Client
from tests.spark.spark_cluster import pipeline
from tests.spark.topic_contents import contents


@pytest.mark.thorough
def test_executors_of_their_own_publish_each_message_once(
    boom: Client, servers: str, topic: str, tmp_path: Path
) -> None:
    named = f"{topic}-named"
    boom.admin.create_topic(named, queues=2)
    with boom.producer() as producer:
        for queue in range(3):
            values = [b'{"carrier": "UA", "n": %d}' % n for n in range(queue, 300, 3)]
            producer.send_many(topic, values, [b"UA"] * len(values), queue=queue).result()
    table = tmp_path / "airlines.csv"
    table.write_text("carrier,airline\nUA,United\n")
    words = ["enrich", topic, "--to", named, "--schema", "carrier string, n int"]
    words += ["--lookup", str(table), "--on", "carrier"]
    words += ["--checkpoint", str(tmp_path / "checkpoint"), "--servers", servers]
    done = pipeline(*words, "--master", "local-cluster[2,1,512]")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 300
    assert "log4j" not in done.stderr
    assert "WARN " not in done.stderr
    assert sum(end for _, end in boom.admin.offsets(named).values()) == 300
    found = [json.loads(message.value or b"") for message in contents(boom, named)]
    assert sorted(each["n"] for each in found) == list(range(300))
    assert {each["airline"] for each in found} == {"United"}
