"""Pods with a subdomain listen on the same port, each at the address of its own name."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.cluster import client_of, create, items_of, until, until_running
from tests.local.conftest import Start, Up
from tests.local.network import Network
from tests.local.node.life import body, container
from tests.local.program import job, python, role, script, written
from tests.manifests.build import Manifest
from trainmaster.core.ids import POD
from trainmaster.local.node.address import is_own

LABELS = {"app": "peers"}
PEERS = """
import json, os, socket, threading, time

PORT = 50515
own = int(os.environ["TRAININGJOB_REPLICA_INDEX"])

def name(index):
    return f"job-worker-{index}.peers.default.svc.cluster.local"

def answer(server):
    while True:
        line, _ = server.accept()
        line.sendall(str(own).encode())
        line.close()

def ask(index):
    while True:
        try:
            with socket.create_connection((name(index), PORT), timeout=10) as line:
                return line.recv(10).decode()
        except OSError:
            time.sleep(0.02)  # the other program has not started yet

server = socket.create_server((name(own), PORT))
threading.Thread(target=answer, args=[server], daemon=True).start()
answers = [ask(index) for index in range(2)]
own_address = server.getsockname()[0]
while len(service := {each[4][0] for each in socket.getaddrinfo("peers", PORT)}) < int(os.environ["EXPECTED"]):
    time.sleep(0.02)
found = [answers, own_address, os.environ["POD_IP"], sorted(service)]
json.dump(found, open(f"found-{own}.new", "w"))
os.replace(f"found-{own}.new", f"found-{own}")
while not all(map(os.path.exists, ("found-0", "found-1"))):
    time.sleep(0.02)
"""
NO_NAMESPACES = ("env", "TRAINMASTER_NO_NAMESPACES=1")


def peers(command: list[str], **env: str) -> Manifest:
    """A job of two pods with a subdomain."""
    worker = role(command, 2)
    worker["template"]["metadata"] = {"labels": LABELS}
    worker["template"]["spec"]["subdomain"] = "peers"
    own = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    worker["template"]["spec"]["containers"][0]["env"] = [own, *({"name": k, "value": v} for k, v in env.items())]
    return job(worker=worker)


def service() -> Manifest:
    spec = {"clusterIP": "None", "selector": LABELS, "ports": [{"port": 50515}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"}, "spec": spec}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("inside", "of_service"),
    [
        pytest.param((), 2, id="by a private hosts file"),
        pytest.param(NO_NAMESPACES, 1, id="in Python programs, without namespaces"),
    ],
)
def test_pods_of_one_job_listen_on_the_same_port_at_their_own_names(
    start: Start, tmp_path: Path, inside: tuple[str, ...], of_service: int
) -> None:
    manifest = written(tmp_path, service(), peers(python(PEERS), EXPECTED=str(of_service)))

    code, output, errors = start("run", manifest, "--timeout", "90s", inside=inside).end()

    assert code == 0, output + errors
    found: list[Any] = [json.loads((tmp_path / f"found-{index}").read_text()) for index in range(2)]
    assert [answers for answers, *_ in found] == [["0", "1"], ["0", "1"]]
    addresses = [address for _, address, *_ in found]
    assert len(set(addresses)) == 2
    assert all(map(is_own, addresses))
    assert [address for _, _, address, _ in found] == addresses
    for *_, of_name in found:
        assert of_name == sorted(addresses)[:of_service]


EVENTS = """
import asyncio, json, sys
from trainmaster.core.ids import EVENT, POD
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.kubeconfig import load_config

async def main():
    async with KubeCluster(load_config(kubeconfig=sys.argv[1])) as cluster:
        await cluster.create(POD, "default", sys.argv[2].encode())
        while not (found := [each for each in await items(cluster, EVENT) if each["reason"] == "AddressShared"]):
            await asyncio.sleep(0.05)
        while not (ips := [pod["status"].get("podIP") for pod in await items(cluster, POD)])[0]:
            await asyncio.sleep(0.05)
    print(json.dumps([found[0]["type"], found[0]["message"], ips[0]]))

async def items(cluster, resource):
    return json.loads(await cluster.list(resource, namespace="default"))["items"]

asyncio.run(main())
"""


def test_with_a_single_loopback_address_a_pod_has_it_and_an_event_says_so(
    up: Up, state: Path, network: Network
) -> None:
    network.run("ip", "address", "delete", "127.0.0.1/8", "dev", "lo")
    network.run("ip", "address", "add", "127.0.0.1/32", "dev", "lo")
    up(inside=network.inside)
    pod = body("p", container("exec sleep 1000"), node="local", subdomain="s")

    found = network.run(sys.executable, "-c", EVENTS, str(state / "kubeconfig"), json.dumps(pod))

    kind, message, address = json.loads(found)
    assert (kind, address) == ("Warning", "127.0.0.1")
    assert message == (
        "the pod has the address 127.0.0.1, as all pods here, because this system has no other loopback addresses "
        "(cannot assign requested address); two pods cannot listen on the same port: use different ports, or Linux"
    )


async def addresses_of(state: Path) -> dict[str, str]:
    async with client_of(state) as cluster:
        await until_running(cluster, 2)
        return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in await items_of(cluster, POD)}


async def test_pods_keep_their_addresses_when_the_cluster_is_killed(up: Up, state: Path) -> None:
    first = up()
    async with client_of(state) as cluster:
        await create(cluster, peers(script("exec sleep 1000")))
    before = await addresses_of(state)
    first.kill()
    another = "127.64.0.1"  # not the address to which the name of the pod leads
    for file in (state / "node" / "pods").glob("*/pod.json"):
        file.write_text(file.read_text().replace(before["job-worker-0"], another))
    hosts = state / "node" / "hosts" / "default"

    up()

    await until(lambda: f"{another}\tjob-worker-0.peers.default.svc.cluster.local" in hosts.read_text())
    assert f"{before['job-worker-1']}\tjob-worker-1.peers.default.svc.cluster.local" in hosts.read_text()
