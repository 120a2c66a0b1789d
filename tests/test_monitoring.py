"""Real loopback HTTP: a kubelet and a Prometheus are nothing else."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from testbed.plane import free_port
from tests.runtime.cluster import FakeCluster
from tests.runtime.kind import ToyKind
from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import POD, SERVICE, Resource
from trainmaster.core.view import JobView, PodView, ServiceView
from trainmaster.kinds.base import Kind, Settings
from trainmaster.kinds.registry import all_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.monitoring import OFF, TEXTS_PER_SECOND, MetricsText, serve_health, serve_metrics
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.controller import RESERVED, Controller
from trainmaster.runtime.executor import Executor
from trainmaster.runtime.host_ports import HostPorts
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.store import Store


@pytest.fixture
def address() -> str:
    """One that was free a moment ago, and that no outgoing connection gets."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def taken() -> Iterator[str]:
    """One that somebody else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield f"127.0.0.1:{other.getsockname()[1]}"


async def ask(address: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        return response.status, await response.text()


# --- alive and ready ---


async def test_a_process_that_answers_is_alive(address: str) -> None:
    async with serve_health(address, lambda: False):
        assert await ask(address, "/healthz") == (200, "ok")


async def test_it_is_not_ready_until_its_stores_are_complete(address: str) -> None:
    synced = False
    async with serve_health(address, lambda: synced):
        assert await ask(address, "/readyz") == (503, "not ready: the stores are not complete yet")
        synced = True
        assert await ask(address, "/readyz") == (200, "ok")


async def test_it_says_what_it_waits_for(address: str) -> None:
    async with serve_health(address, lambda: False, lambda: "there is no certificate yet"):
        assert await ask(address, "/readyz") == (503, "not ready: there is no certificate yet")


async def test_other_paths_are_not_found(address: str) -> None:
    async with serve_health(address, lambda: True):
        assert (await ask(address, "/metrics"))[0] == 404


async def test_the_port_is_free_again_afterwards(address: str) -> None:
    async with serve_health(address, lambda: True):
        pass

    with pytest.raises(aiohttp.ClientConnectorError):
        await ask(address, "/healthz")


async def test_the_port_is_free_again_after_an_error(address: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve_health(address, lambda: True):
            raise ZeroDivisionError

    with pytest.raises(aiohttp.ClientConnectorError):
        await ask(address, "/healthz")


@pytest.mark.parametrize(
    "said", [pytest.param(b"", id="silent"), pytest.param(b"GET /healthz HTTP/1.1\r\nHo", id="half a request")]
)
async def test_an_idle_client_does_not_hold_up_the_end(address: str, said: bytes) -> None:
    async with asyncio.timeout(5):
        async with serve_health(address, lambda: True):
            host, _, port = address.partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            await writer.drain()
    writer.close()


# --- addresses ---


async def test_zero_switches_it_off() -> None:
    async with serve_health(OFF, lambda: True), serve_metrics(OFF):
        pass


async def test_a_port_alone_means_every_interface(address: str) -> None:
    _, _, port = address.partition(":")
    async with serve_health(f":{port}", lambda: True):
        assert await ask(address, "/healthz") == (200, "ok")


async def test_an_ipv6_address_stands_in_brackets(address: str) -> None:
    _, _, port = address.partition(":")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    async with serve_health(f"[::1]:{port}", lambda: True):
        assert await ask(f"[::1]:{port}", "/healthz") == (200, "ok")


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("", id="empty"),
        pytest.param("8080", id="no colon"),
        pytest.param("localhost", id="no port"),
        pytest.param("localhost:", id="empty port"),
        pytest.param(":http", id="port by name"),
        pytest.param(":-1", id="negative"),
        pytest.param(":70000", id="too large"),
        pytest.param("[::1]", id="IPv6 without port"),
    ],
)
async def test_a_bad_address_is_told_with_what_would_be_a_good_one(bad: str) -> None:
    with pytest.raises(BadConfig) as raised:
        async with serve_metrics(bad):
            pass

    assert str(raised.value) == f"bad address {bad!r}: use host:port, :port, or 0 to switch it off"


async def test_a_port_that_is_taken_is_told_in_a_sentence(taken: str) -> None:
    with pytest.raises(BadConfig, match="Address already in use") as raised:
        async with serve_health(taken, lambda: True):
            pass

    said = str(raised.value)
    assert said.startswith(f"cannot listen on {taken}: ")
    assert said.endswith("; choose another address, or 0")


# --- metrics ---


class FreshKind(ToyKind):
    """A kind that no other test counts for."""

    resource = Resource("test.example", "v1", "freshes", "Fresh")


def a_controller(kind: Kind[Any]) -> Controller:
    cluster = FakeCluster()
    jobs, pods, services = Store[JobView](kind.resource), Store[PodView](POD), Store[ServiceView](SERVICE)
    barrier = Barrier({kind.resource: jobs, POD: pods, SERVICE: services})
    return Controller(
        ResourceKinds(kind),
        jobs=jobs,
        pods=pods,
        services=services,
        barrier=barrier,
        executor=Executor(cluster, barrier),
        recorder=Recorder(cluster, lambda: pytest.fail("nothing is recorded")),
        ports=HostPorts(),
        now=lambda: pytest.fail("nothing is planned"),
        workers=32,
    )


Samples = dict[str, dict[tuple[str, ...], float]]


async def samples(address: str) -> Samples:
    """Values by name and by the values of the labels."""
    status, text = await ask(address, "/metrics")
    assert status == 200
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


class Counting(Collector):
    """Counts how often the metrics are collected."""

    def __init__(self) -> None:
        self.collected = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def collect(self) -> Iterator[Metric]:
        self.collected += 1
        yield CounterMetricFamily("collected", "How often", value=self.collected)

    def text(self, clock: Callable[[], float]) -> MetricsText:
        return MetricsText(clock=clock, registry=self._registry)


def test_metrics_are_generated_a_few_times_a_second_however_often_they_are_asked_for() -> None:
    now, counting = 100.0, Counting()
    text = counting.text(lambda: now)
    before = counting.collected

    answers = [text() for _ in range(1000)]
    assert counting.collected - before == TEXTS_PER_SECOND
    assert answers[-1] == answers[TEXTS_PER_SECOND - 1]

    now += 1.0
    assert text() != answers[-1]


def test_two_requests_in_a_second_both_get_new_values() -> None:
    text = Counting().text(lambda: 100.0)

    assert text() != text()


QUEUE = [
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds_count",
    "workqueue_work_duration_seconds_count",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
]
CONTROLLER = [
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_time_seconds_count",
    "controller_runtime_active_workers",
]
RESULTS = ["success", "requeue", "requeue_after", "error"]


async def test_everything_is_0_before_anything_happened(address: str) -> None:
    a_controller(FreshKind())
    async with serve_metrics(address):
        shown = await samples(address)

    assert {name: shown[name]["fresh",] for name in QUEUE + CONTROLLER} == dict.fromkeys(QUEUE + CONTROLLER, 0.0)
    totals = shown["controller_runtime_reconcile_total"]
    assert {result: totals["fresh", result] for result in RESULTS} == dict.fromkeys(RESULTS, 0.0)
    assert shown["controller_runtime_max_concurrent_reconciles"]["fresh",] == 32 + RESERVED


async def test_every_kind_has_its_own_numbers(address: str) -> None:
    kinds = all_kinds(Settings())
    for kind in kinds:
        a_controller(kind)
    async with serve_metrics(address):
        shown = await samples(address)

    for kind in kinds:
        name = kind.resource.kind.lower()
        assert all((name,) in shown[metric] for metric in QUEUE + CONTROLLER)
        assert all((name, result) in shown["controller_runtime_reconcile_total"] for result in RESULTS)


async def test_metrics_say_in_which_format_they_are(address: str) -> None:
    async with serve_metrics(address), aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=")
