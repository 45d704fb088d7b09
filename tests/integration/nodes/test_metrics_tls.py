"""Metrics and health of nodes over HTTPS, while a certificate is renewed."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

import pytest

from logboom.deploy import Cluster
from logboom.wire.errors import StartError
from tests.integration.waiting import wait_until
from tests.unit.wire.tls_pairs import FIRST, RENEWED, der, put_pair, trusting


def shown_at(endpoint: str) -> bytes:
    """Ask whether a node lives; return the certificate that it showed."""
    connection = http.client.HTTPSConnection(endpoint, timeout=60, context=trusting())
    try:
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        found = connection.sock.getpeercert(binary_form=True)
        connection.request("GET", "/live")
        answer = connection.getresponse()
        assert (answer.status, b'"ok"' in answer.read()) == (200, True)
        return found or b""
    finally:
        connection.close()


def test_nodes_speak_https_with_the_newest_certificate(tmp_path: Path) -> None:
    cert, key = map(str, put_pair(tmp_path))
    settings = {"metrics_tls_cert": cert, "metrics_tls_key": key}
    with Cluster(
        name_servers=1, brokers=1, name_server_settings=settings, broker_settings=settings
    ) as cluster:
        ends = [cluster.metrics_endpoint(each) for each in cluster.nodes]
        assert [shown_at(each) for each in ends] == [der(FIRST)] * 2
        Path(cert).write_bytes(RENEWED.read_bytes())  # its key follows

        def told() -> bool:
            assert [shown_at(each) for each in ends] == [der(FIRST)] * 2
            return all("certificate_refused" in cluster.log(each) for each in cluster.nodes)

        wait_until(told, "a certificate without its key is not told of")
        put_pair(tmp_path, RENEWED)

        def renewed() -> bool:
            return [shown_at(each) for each in ends] == [der(RENEWED)] * 2

        wait_until(renewed, "the old certificate is shown")


def test_a_certificate_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    cert, key = put_pair(tmp_path)
    key.chmod(0o644)
    wrong = {"metrics_tls_cert": str(cert), "metrics_tls_key": str(key)}
    for settings, said in ((wrong, "chmod 600"), ({"metrics_tls_cert": str(cert)}, "belong")):
        with pytest.raises(StartError, match=said):
            Cluster(name_servers=1, brokers=1, broker_settings=settings)
