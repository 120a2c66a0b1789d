"""All settings and their defaults, in one tree.

Every default exists here and nowhere else: the options of the command line read theirs from OPERATOR, SERVER,
WEBHOOK and NODE. Durations are seconds.
"""

from collections.abc import Mapping

import msgspec

from trainmaster.core.ids import Key
from trainmaster.kinds.accelerator import Accelerator


class JobSettings(msgspec.Struct, frozen=True):
    """How jobs are run: what the kinds need to know."""

    server_url: str = "di-server.di-system:8080"
    """Address under which pods reach di-server."""
    service_domain: str = "svc.cluster.local"
    """What follows the namespace in the DNS names of pods of DIJobs with tasks."""
    shared_network: bool = False
    """All pods are processes of one machine, as in local mode: ports are assigned to them."""
    max_host_ports_per_job: int = 1000
    """Ports of nodes (hostNetwork) that a job may have."""
    max_host_ports_per_namespace: int = 2000
    aggregator_config: Key = Key("nervex-system", "aggregator-config")
    """The AggregatorConfig of NerveXJobs, in local mode. On a cluster it is in the namespace of the installation."""
    dijob_aggregator_config: Key = Key("di-system", "aggregator-config")
    """The same, of DIJobs."""
    creating_restart_period: float = 0.0
    """How long a replica whose containers cannot be created is restarted with another pod."""
    creating_duration_period: float = 900.0
    """How long one pod may try to create its containers."""
    enable_creating_failed: bool = True
    """Jobs fail when containers cannot be created."""
    node_fail_grace_period: float = 30.0
    """How long a node may be not ready before its pods count as lost."""
    device_fail_grace_period: float = 900.0
    """How long devices that pods were given may be missing on their node before these pods fail. A kubelet has none
    while it waits for the device plug-in, and forgets those of one that was stopped for five minutes."""
    bad_node_conditions: frozenset[str] = frozenset()
    """Conditions under which a node has failed."""
    accelerators: Mapping[str, Accelerator] = {}
    """Volumes and variables that pods get from their machine, by the resource that they request."""
    gang_scheduler: str = ""
    """The scheduler that places the pods of a job together; empty for none."""


class ElectionTimes(msgspec.Struct, frozen=True):
    """Leader election. Kubernetes' own components use these numbers."""

    lease: float = 15.0
    """Duration of the lease: others wait so long before they take over."""
    renew_deadline: float = 10.0
    """How long the leader tries to renew before it stops."""
    retry: float = 2.0
    """Pause between two tries."""


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``trainmaster operator``."""

    jobs: JobSettings = JobSettings()
    election: ElectionTimes = ElectionTimes()
    leader_elect: bool = True
    lease_name: str = ""
    """One Lease for all kinds; empty for one for each kind, which all installations share."""
    lease_namespace: str = "kube-system"
    """Of the Leases of operators for all namespaces. It is the same for all installations, exists on every cluster, and
    tenants may not write there."""
    workers: int = 32
    """Jobs of each resource that are reconciled at the same time."""
    request_timeout: float = 30.0
    """Timeout of a request to the API server."""
    metrics_bind_address: str = ":8080"
    health_probe_bind_address: str = ":8081"


class Rate(msgspec.Struct, frozen=True):
    per_second: float
    burst: int


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What callers of di-server may use. DI-engine's client sends about one request a second."""

    connections: int = 1024
    connections_per_address: int = 128
    body_bytes: int = 16 * 1024 * 1024
    """Of all bodies in flight, of callers that are known by their address or token."""
    unknown_body_bytes: int = 4 * 1024 * 1024
    """The same, of all other callers."""
    pods: Rate = Rate(200.0, 400)
    """Of one address of pods. With hostNetwork all pods of a node have the same address."""
    users: Rate = Rate(50.0, 200)
    """Of one user, known by a token."""
    unknown: Rate = Rate(5.0, 20)
    """Of one address that is not known."""
    token_reviews: Rate = Rate(1.0, 10)
    """Tokens that one address may have reviewed."""
    lookups: Rate = Rate(5.0, 20)
    """Objects that one caller may ask for and the cache does not have."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``trainmaster server``: di-server."""

    bind_address: str = ":8080"
    aggregator_config: Key = JobSettings().dijob_aggregator_config
    """The AggregatorConfig of DIJobs, in local mode."""
    max_replicas_per_job: int = 1000
    max_replicas_per_namespace: int = 10_000
    shutdown_delay: float = 3.0
    """How long requests are served after SIGTERM, while /readyz fails."""
    request_timeout: float = 30.0
    """Timeout of a request to the API server."""
    limits: ServerLimits = ServerLimits()


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``trainmaster webhook``."""

    bind_address: str = ":9443"
    service_name: str = "trainmaster-webhook"
    secret_name: str = "trainmaster-webhook-certificate"  # noqa: S105 the name of one
    configuration: str = "trainmaster"
    """Name of the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration."""
    request_timeout: float = 10.0
    """Timeout of a request to the API server."""
    metrics_bind_address: str = ":8080"
    health_probe_bind_address: str = ":8081"


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``trainmaster node``."""

    client_name: str = "kube-apiserver-kubelet-client"
    """Common name of the certificate with which the API server asks for logs: kubeadm's."""


SYSTEM_NAMESPACE = "trainmaster-system"
"""Of AggregatorConfigs, Secrets and Services, for a program that has no namespace of its own."""

OPERATOR = OperatorSettings()
SERVER = ServerSettings()
WEBHOOK = WebhookSettings()
NODE = NodeSettings()
