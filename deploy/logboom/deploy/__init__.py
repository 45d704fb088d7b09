"""The way to start logboom: nodes in this process, or a cluster of processes.

with embedded() as node:
    connect(node.endpoints)
with Cluster(name_servers=3, brokers=3) as cluster:
    connect(cluster.endpoints)
"""

from logboom.deploy.cluster import Cluster
from logboom.deploy.embedded import Embedded, embedded

__all__ = ["Cluster", "Embedded", "embedded"]
