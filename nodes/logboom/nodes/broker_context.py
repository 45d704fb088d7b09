"""The objects that all parts of a broker share: settings, tables and connections."""

from __future__ import annotations

import random
from dataclasses import dataclass

from logboom.nodes.cluster.applied_metadata import AppliedMetadata
from logboom.nodes.cluster.lease import Lease
from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.cluster.registration import Registration, RegistrationHost
from logboom.nodes.config import BrokerConfig, announced_listeners
from logboom.nodes.disk.disk_space import SpaceGauge
from logboom.nodes.disk.disk_speed import DiskSpeed
from logboom.nodes.log.storage import Storage
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.rights_review import RightsReview
from logboom.wire.acceptor import Acceptor
from logboom.wire.access.access_rules import node_user
from logboom.wire.commands import RegisterBroker
from logboom.wire.features import FEATURES
from logboom.wire.group_routes import GroupRoutes
from logboom.wire.hello import Identity
from logboom.wire.name_servers import NameServers
from logboom.wire.routes import Routes
from logboom.wire.settings import LiveSettings
from logboom.wire.stats import Statistics


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """The shared objects of one broker process."""

    config: BrokerConfig
    """What the config file says. What may change while the broker runs is in `settings`."""
    settings: LiveSettings
    incarnation: str
    """Random per process."""
    rng: random.Random
    stats: Statistics
    queues: ReplicaTable
    space: SpaceGauge
    disk_speed: DiskSpeed
    acceptor: Acceptor
    """The sessions, and what each may do."""
    rights: RightsReview
    """Checks what waits once more when rights have changed."""
    routes: Routes
    """The broker's copy of the metadata: topics, brokers and decisions."""
    groups: GroupRoutes
    """The broker's copy of the metadata: the groups that it coordinates."""
    links: PeerConnections
    servers: NameServers
    proposals: ProposalQueue
    registration: Registration
    applied: AppliedMetadata
    """The version of the metadata by which all replicas have their roles."""

    @property
    def me(self) -> str:
        """The id of this broker."""
        return self.config.id

    @property
    def storage(self) -> Storage:
        """The store of all replicas."""
        return self.queues.storage

    @property
    def lease(self) -> Lease:
        """The lease under which this broker leads and coordinates."""
        return self.registration.lease

    def make_proposals(self, name: str, window: int) -> ProposalQueue:
        """Return a queue of commands beside `proposals`, so that neither delays the other.

        Args:
            name: distinguishes it from the other queues of this process.
            window: number of commands that may be in flight.
        """
        proposer = f"{self.me}/{self.incarnation}/{name}"
        return ProposalQueue(proposer, self.links, self.servers, window)


def make_context(
    config: BrokerConfig,
    storage: Storage,
    rng: random.Random,
    incarnation: str,
    cluster_key: bytes,
    acceptor: Acceptor,
    host: RegistrationHost,
) -> BrokerContext:
    """Open all queues that `storage` holds, and return the context of their broker."""
    queues = ReplicaTable(storage, config.cache_bytes)
    settings = LiveSettings(config.id, config)
    links = PeerConnections(
        Identity(config.id, "broker", 0, cluster_key, node_user(config.id)), rng
    )
    servers = NameServers(config.name_servers, (each.endpoint for each in storage.known_servers))
    proposals = ProposalQueue(f"{config.id}/{incarnation}", links, servers)
    command = RegisterBroker(
        config.id,
        storage.store_id,
        incarnation,
        config.advertise,
        config.zone,
        storage.suspect,
        0,
        config.host,
        announced_listeners(config),
        FEATURES,
    )
    routes = Routes()
    registration = Registration(
        command,
        links,
        servers,
        proposals,
        host,
        config.max_request_bytes,
        lambda: (
            max((topic for topic, _ in queues.replicas), default=0),
            max(0, routes.version),
        ),
    )
    return BrokerContext(
        config=config,
        settings=settings,
        incarnation=incarnation,
        rng=rng,
        stats=Statistics(),
        queues=queues,
        space=SpaceGauge(storage, settings),
        disk_speed=DiskSpeed(),
        acceptor=acceptor,
        rights=RightsReview(acceptor),
        routes=routes,
        groups=GroupRoutes(members_at=config.id),
        links=links,
        servers=servers,
        proposals=proposals,
        registration=registration,
        applied=AppliedMetadata(registration.lease),
    )
