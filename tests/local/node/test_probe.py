"""Probes: counted by tables, and asked of real containers."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.node.life import PYTHON, Scene, container, state_of
from trainmaster.local.node.probe import Counter, Target, run_handler

Object = dict[str, Any]
PROBE = {"periodSeconds": 1, "failureThreshold": 1}


@pytest.mark.parametrize(
    ("probe", "initially", "outcomes", "completed"),
    [
        ({}, False, [True], [True]),
        ({"successThreshold": 2}, False, [True, True], [False, True]),
        ({"successThreshold": 2}, False, [True, False, True], [False, False, False]),
        ({}, True, [False, False, False], [False, False, True]),
        ({}, True, [False, False, True, False], [False, False, True, False]),
        ({"failureThreshold": 1}, True, [False], [True]),
    ],
)
def test_thresholds(probe: Object, initially: bool, outcomes: list[bool], completed: list[bool]) -> None:
    counter = Counter(probe, initially=initially)

    assert [counter.count(ok=outcome) for outcome in outcomes] == completed


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ({"httpGet": {"port": 1}}, 'Get "http://127.64.0.1:1/": connection refused'),
        ({"tcpSocket": {"port": 1}}, "dial tcp 127.64.0.1:1: connection refused"),
        ({"tcpSocket": {"port": 1, "host": "127.0.0.1"}}, "dial tcp 127.0.0.1:1: connection refused"),
    ],
)
async def test_a_closed_port_of_the_pod_has_a_short_message(tmp_path: Path, handler: Object, said: str) -> None:
    target = Target(shim=[], folder=tmp_path, pid=0, cwd="/", env={}, ports={}, address="127.64.0.1")

    outcome = await run_handler(handler, target, 5.0)

    assert (outcome.ok, outcome.message) == (False, said)


def is_ready(pod: Object) -> bool:
    return bool(pod["status"]["containerStatuses"][0]["ready"])


async def test_container_is_ready_when_its_probe_command_succeeds(scene: Scene) -> None:
    probe = {**PROBE, "exec": {"command": ["test", "-e", "up"]}}
    async with scene.node():
        await scene.pod("a", container("sleep 1000", readinessProbe=probe))
        before = await scene.running("a")
        (scene.workdir / "up").touch()
        await scene.until("a", is_ready)
        (scene.workdir / "up").unlink()
        after = await scene.until("a", lambda pod: not is_ready(pod))

    assert not is_ready(before)
    condition = next(each for each in after["status"]["conditions"] if each["type"] == "Ready")
    assert (condition["reason"], condition["message"]) == (
        "ContainersNotReady",
        "containers with unready status: [main]",
    )


@pytest.mark.parametrize("handler", [{"httpGet": {"path": "/up"}}, {"tcpSocket": {}}])
async def test_container_is_ready_when_it_answers(scene: Scene, handler: Object, unused_tcp_port: int) -> None:
    kind = next(iter(handler))
    probe = {**PROBE, kind: {**handler[kind], "port": "web"}}
    ports = [{"name": "web", "containerPort": unused_tcp_port}]
    server = [PYTHON, "-m", "http.server", "--bind", "127.0.0.1", str(unused_tcp_port)]
    (scene.workdir / "up").touch()
    async with scene.node():
        await scene.pod("a", container(command=server, readinessProbe=probe, ports=ports))
        await scene.until("a", is_ready)


async def test_container_that_is_not_alive_is_restarted(scene: Scene) -> None:
    probe = {**PROBE, "exec": {"command": ["sh", "-c", "! test -e ill"]}}
    async with scene.node():
        await scene.pod("a", container("rm -f ill; sleep 1000", livenessProbe=probe), policy="Always")
        await scene.running("a")
        (scene.workdir / "ill").touch()
        pod = await scene.until("a", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)

    assert state_of(pod, field="lastState")["terminated"]["exitCode"] == 143


async def test_other_probes_wait_for_the_startup_probe(scene: Scene) -> None:
    startup = {**PROBE, "failureThreshold": 1000, "exec": {"command": ["test", "-e", "up"]}}
    readiness = {**PROBE, "exec": {"command": ["true"]}}
    async with scene.node():
        await scene.pod("a", container("sleep 1000", startupProbe=startup, readinessProbe=readiness))
        before = await scene.running("a")
        (scene.workdir / "up").touch()
        after = await scene.until("a", is_ready)

    started = [pod["status"]["containerStatuses"][0]["started"] for pod in (before, after)]
    assert started == [False, True]
