"""The attacks. Each is one round, bounded in count; ``test_all_at_once`` repeats them until its time is over.

An attack may be refused at any point: that is the best outcome. It must not harm others, whether refused or not.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from testbed.admin import MERGE, Admin, path_of
from testbed.answer import Object, Refused
from tests.manifests.build import (
    TRAINER,
    aitrainingjob,
    container,
    dijob,
    mlkubejob,
    mx_replica,
    mxjob,
    resource_of,
    template,
)
from tests.odd import MARK, VALUES, with_value

Attack = Callable[["Target"], Awaitable[None]]

MB = 1_000_000
JOBS_USER, EDIT_USER = "jobs-user", "edit-user"
"""A tenant who may create jobs and nothing else; a tenant with Kubernetes' role "edit" and no right on jobs."""
JOBS_SPACE, EDIT_SPACE = "team-jobs", "team-edit"
"""Their namespaces."""


@dataclass(frozen=True)
class Target:
    """What an attacker knows. Plain data: attackers may be processes of their own."""

    url: str
    ca_file: Path
    tokens: Mapping[str, str]
    metrics_ports: Sequence[int]
    """Of operator, webhook and di-server, which answer without asking who asks."""
    server_port: int
    webhook_port: int


MANAGED = {"app.kubernetes.io/managed-by": "trainmaster"}
_numbers = count(1)
AT_ONCE = 16
"""Requests of one attacker at a time."""
HELD = 4.0
"""Seconds for which an attack stays as it is, so that it has its effect."""


def _name(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"


@asynccontextmanager
async def _as(target: Target, user: str) -> AsyncIterator[Admin]:
    async with Admin(target.url, target.tokens[user], target.ca_file) as client:
        yield client


async def _all(calls: Iterable[Awaitable[Any]]) -> None:
    """Refusals are what the attacker has to live with. Some answers are nested too deeply for Python."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[Any]) -> None:
        async with room:
            with suppress(Refused, aiohttp.ClientError, TimeoutError, ConnectionError, RecursionError):
                await call

    await asyncio.gather(*(one(call) for call in calls))


async def _create_jobs(target: Target, *jobs: Object) -> None:
    async with _as(target, JOBS_USER) as tenant:
        await _all(tenant.create(resource_of(job), job, JOBS_SPACE) for job in jobs)


# --- a tenant who may create jobs ---


async def deep_templates(target: Target) -> None:
    """Values that are hard to read, in the template that the schema preserves. Sent as bytes: Python cannot encode
    some of them."""
    tls = ssl.create_default_context(cafile=target.ca_file)
    headers = {"Authorization": f"Bearer {target.tokens[JOBS_USER]}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, force_close=True)) as session:
        for value in VALUES.values():
            for job in (
                aitrainingjob(_name("odd"), replicaSpecs={"t": {"template": template(container(TRAINER), x=MARK)}}),
                dijob(_name("odd"), coordinator={"template": template(x=MARK)}),
            ):
                url = target.url + path_of(resource_of(job), JOBS_SPACE)
                async with session.post(url, data=BytesIO(with_value(job, value)), headers=headers) as response:
                    await response.read()


async def huge_jobs(target: Target) -> None:
    """More replicas than anybody has pods, by a few bytes."""
    roles = {f"r{number}": _trainers(5500) for number in range(32)}
    worker = {"Worker": mx_replica(replicas=3500), "Scheduler": mx_replica(), "Server": mx_replica(replicas=3000)}
    await _create_jobs(
        target,
        aitrainingjob(_name("roles"), replicaSpecs=roles),
        *(aitrainingjob(_name("wide"), replicaSpecs={"t": _trainers(replicas)}) for replicas in (10_000, 5000, 2000)),
        mxjob(_name("workers"), mxReplicaSpecs=worker),
        mxjob(_name("workers"), mxReplicaSpecs=worker | {"Worker": mx_replica(replicas=1000)}),
    )
    await asyncio.sleep(HELD)
    await _delete_jobs(target)


async def padded_jobs(target: Target) -> None:
    """Jobs of 1.3 MB that nobody runs."""
    pad = {"pad": "x" * 1_300_000}
    template_of = {"template": template(container(TRAINER), metadata={"annotations": pad})}
    for _ in range(10):
        jobs = (
            aitrainingjob(_name("pad"), replicaSpecs={"t": template_of}, managedBy="example.com/nobody")
            for _ in range(20)
        )
        await _create_jobs(target, *jobs)
    await _delete_jobs(target)


async def all_host_ports(target: Target) -> None:
    roles = {
        role: {"replicas": 5000, "template": template(container(TRAINER), hostNetwork=True)} for role in ("a", "b")
    }
    await _create_jobs(target, aitrainingjob(_name("ports"), replicaSpecs=roles))
    await asyncio.sleep(HELD)
    await _delete_jobs(target)


async def flapping_spec(target: Target) -> None:
    """A job whose spec changes 200 times."""
    job = aitrainingjob(_name("flap"), replicaSpecs={"t": _trainers(2)})
    await _create_jobs(target, job)
    async with _as(target, JOBS_USER) as tenant:
        for number in range(200):
            change = {"spec": {"suspend": bool(number % 2)}}
            path = path_of(resource_of(job), JOBS_SPACE, job["metadata"]["name"])
            await _all([tenant.request("PATCH", path, change, content_type=MERGE)])


async def many_jobs(target: Target) -> None:
    """Created and deleted at once: every pass finds a job that is gone."""
    jobs = [aitrainingjob(_name("many"), replicaSpecs={"t": _trainers(3)}) for _ in range(100)]
    await _create_jobs(target, *jobs)
    await _delete_jobs(target)


async def refused_pods(target: Target) -> None:
    """Pods that the API server refuses, each with a reason to be told in an Event."""
    bad = template(container(TRAINER, resources={"limits": {"cpu": "1", "memory": "-1"}}))
    jobs = [aitrainingjob(_name("bad"), replicaSpecs={"t": {"replicas": 50, "template": bad}}) for _ in range(20)]
    await _create_jobs(target, *jobs)
    await _delete_jobs(target)


async def jobs_owned_by_others(target: Target) -> None:
    """Owner references, labels and annotations that claim to belong to another tenant's job."""
    owner = {"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "name": "job", "uid": "1-2-3"}
    meta = {"ownerReferences": [owner | {"controller": True}], "labels": MANAGED, "finalizers": ["example.com/never"]}
    claims = template(metadata={"labels": MANAGED | {"TrainingJobName": "job"}, "finalizers": ["example.com/never"]})
    jobs = [
        aitrainingjob(_name("owned"), metadata=meta, replicaSpecs={"t": {"replicas": 2, "template": claims}}),
        mlkubejob(_name("owned")),
    ]
    await _create_jobs(target, *jobs)


async def long_names(target: Target) -> None:
    """Names and keys of the greatest length, and texts that terminals obey."""
    text = {"example.com/text": "\x1b[2J\u202e\u0000" + "\U0001f600" * 20_000}
    jobs = [
        aitrainingjob("n" * 63, replicaSpecs={"r" * 63: _trainers(1)}),
        mxjob("m" * 253),
        dijob(_name("text"), metadata={"annotations": text}),
    ]
    await _create_jobs(target, *jobs)


async def _delete_jobs(target: Target) -> None:
    async with _as(target, JOBS_USER) as tenant:
        for job in (aitrainingjob(), mxjob(), dijob()):
            await _all([tenant.request("DELETE", path_of(resource_of(job), JOBS_SPACE))])


def _trainers(replicas: int) -> Object:
    return {"replicas": replicas, "template": template(container(TRAINER))}


# --- a tenant with the role "edit" and no right on jobs ---


async def labelled_config_maps(target: Target) -> None:
    """300 MB that say that they are ours."""
    async with _as(target, EDIT_USER) as tenant:
        bodies = ({"metadata": {"name": _name("big"), "labels": MANAGED}, "data": {"x": "y" * MB}} for _ in range(300))
        await _all(tenant.create("configmaps", body, EDIT_SPACE) for body in bodies)
        await _all([tenant.request("DELETE", path_of("configmaps", EDIT_SPACE))])


async def labelled_pods(target: Target) -> None:
    """Large pods with our labels, some with an owner that they do not have."""
    labels = MANAGED | {"TrainingJobName": "job", "group-name": "kubeflow.org", "job-name": "job"}
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "MXJob", "name": "job", "uid": "1-2-3", "controller": True}
    env = [{"name": f"V{number}", "value": "x" * 10_000} for number in range(80)]
    async with _as(target, EDIT_USER) as tenant:
        bodies = [
            {
                "metadata": {"name": _name("pod"), "labels": labels, "ownerReferences": [owner] * (number % 2)},
                "spec": {"containers": [{"name": "x", "image": "x", "env": env}]},
            }
            for number in range(60)
        ]
        await _all(tenant.create("pods", body, EDIT_SPACE) for body in bodies)
        await _all([tenant.request("DELETE", path_of("pods", EDIT_SPACE), {"gracePeriodSeconds": 0})])


async def labelled_services(target: Target) -> None:
    async with _as(target, EDIT_USER) as tenant:
        bodies = (
            {"metadata": {"name": _name("svc"), "labels": MANAGED}, "spec": {"clusterIP": "None"}} for _ in range(300)
        )
        await _all(tenant.create("services", body, EDIT_SPACE) for body in bodies)
        await _all([tenant.request("DELETE", path_of("services", EDIT_SPACE))])


async def changing_pods(target: Target) -> None:
    """One pod with our labels that changes 300 times."""
    name = _name("busy")
    pod = {"metadata": {"name": name, "labels": MANAGED}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    async with _as(target, EDIT_USER) as tenant:
        await _all([tenant.create("pods", pod, EDIT_SPACE)])
        changes = ({"metadata": {"labels": {"n": str(number)}}} for number in range(300))
        await _all(tenant.patch("pods", EDIT_SPACE, name, change) for change in changes)


# --- any pod that can open a TCP connection ---


async def metrics_flood(target: Target) -> None:
    """Every port that answers without asking who asks."""
    urls = [f"http://127.0.0.1:{port}/metrics" for port in target.metrics_ports]
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=500), timeout=timeout) as session:
        await asyncio.gather(*(_get(session, url) for url in urls for _ in range(500)))


async def large_bodies(target: Target) -> None:
    """900 requests to di-server and 150 to the webhook whose last byte never comes."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    half = [_unfinished("127.0.0.1", target.server_port, "/v1alpha1/replicas", MB) for _ in range(900)]
    path = "/validate-elasticdeeplearning-ai-v1-aitrainingjob"
    half += [_unfinished("127.0.0.1", target.webhook_port, path, 3 * MB, tls) for _ in range(150)]
    await asyncio.gather(*half)


async def anonymous_questions(target: Target) -> None:
    """Jobs and pods of others, with no token and with many bad ones."""
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=50), timeout=timeout) as session:
        asked = (
            f"http://127.0.0.1:{target.server_port}/v1alpha1/replicas?namespace=honest-0&coordinator=job-coordinator"
        )
        await asyncio.gather(*(_get(session, asked) for _ in range(200)))
        tokens = ({"Authorization": f"Bearer junk-{number}"} for number in range(200))
        await asyncio.gather(*(_get(session, asked, token) for token in tokens))


async def idle_connections(target: Target) -> None:
    """Connections that never say anything, and some that say one byte."""
    ports = [*target.metrics_ports, target.server_port, target.webhook_port]
    held = []
    for port in ports:
        for number in range(300):
            with suppress(OSError, TimeoutError):
                _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 2)
                held.append(writer)
                writer.write(b"G" * (number % 2))
    await asyncio.sleep(HELD)
    for writer in held:
        writer.close()


async def odd_requests(target: Target) -> None:
    """What no client sends."""
    url, timeout = f"http://127.0.0.1:{target.server_port}/v1alpha1/replicas", aiohttp.ClientTimeout(total=5)
    bodies = [*VALUES.values(), b"", b"\x00" * 60_000, b'{"namespace":' + b"[" * 30_000]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=20), timeout=timeout) as session:
        for method in ("GET", "POST", "DELETE", "PUT", "TRACE"):
            for body in bodies:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with session.request(method, url, data=BytesIO(body)) as response:
                        await response.read()


async def _get(session: aiohttp.ClientSession, url: str, headers: dict[str, str] | None = None) -> None:
    with suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
        async with session.get(url, headers=headers) as response:
            await response.read()


async def _unfinished(host: str, port: int, path: str, size: int, tls: ssl.SSLContext | None = None) -> None:
    """A request of this size without its last byte, given up after three seconds."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(3):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                writer.write(head.encode() + b" " * (size - 1))
                await writer.drain()
                await reader.read(100)
            finally:
                writer.transport.abort()


BY_JOBS_USER: dict[str, Attack] = {
    attack.__name__.replace("_", "-"): attack
    for attack in (
        deep_templates,
        huge_jobs,
        padded_jobs,
        all_host_ports,
        flapping_spec,
        many_jobs,
        refused_pods,
        jobs_owned_by_others,
        long_names,
    )
}
BY_EDIT_USER: dict[str, Attack] = {
    attack.__name__.replace("_", "-"): attack
    for attack in (labelled_config_maps, labelled_pods, labelled_services, changing_pods)
}
BY_ANYBODY: dict[str, Attack] = {
    attack.__name__.replace("_", "-"): attack
    for attack in (metrics_flood, large_bodies, anonymous_questions, idle_connections, odd_requests)
}
