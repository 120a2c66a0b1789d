"""The node on a real kube-apiserver: pods become processes, with the statuses and events of a kubelet."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.certificate import Pair
from tests.local.node.life import PYTHON, Scene, container, state_of, terminated
from trainmaster.core.errors import BadConfig
from trainmaster.local.node.agent import NodeOptions, run_node
from trainmaster.runtime.cluster import Cluster

# --- one container -----------------------------------------------------------------------------


async def test_node_is_ready_and_publishes_its_log_port(scene: Scene) -> None:
    async with scene.node():
        node = await scene.admin.get("nodes", None, scene.name)
        await scene.admin.wait_for("coordination.k8s.io/v1/leases", "kube-node-lease", scene.name, bool)

    status = node["status"]
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Ready", "True")]
    assert {each["type"]: each["address"] for each in status["addresses"]} == {
        "InternalIP": "127.0.0.1",
        "Hostname": "localhost",
    }
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
    assert status["capacity"]["cpu"] == str(os.cpu_count())
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == scene.name


async def test_node_that_is_known_is_ready_again(scene: Scene) -> None:
    async with scene.node():
        first = await scene.admin.get("nodes", None, scene.name)
    async with scene.node():
        second = await scene.admin.get("nodes", None, scene.name)

    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    ports = [node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] for node in (first, second)]
    assert ports[0] != ports[1]


async def test_pod_runs_and_succeeds(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "pwd > where; hostname >> where")
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded"
    assert terminated(pod)["exitCode"] == 0
    assert (scene.workdir / "where").read_text().split() == [str(scene.workdir), "a"]
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in pod["status"]["conditions"]}
    assert conditions["Ready"] == ("False", "PodCompleted")
    assert conditions["Initialized"] == ("True", "PodCompleted")


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [("exit 3", 3, "Error"), ("kill -9 $$$$", 137, "Error"), ("kill -15 $$$$", 143, "Error")],
)
async def test_failure_is_reported(scene: Scene, script: str, code: int, reason: str) -> None:
    async with scene.node():
        await scene.pod("a", script)
        pod = await scene.ended("a")

    state = terminated(pod)
    assert (pod["status"]["phase"], state["exitCode"], state["reason"]) == ("Failed", code, reason)


async def test_running_pod_is_ready_on_loopback(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "sleep 1000")
        pod = await scene.running("a")

    status = pod["status"]
    assert (status["podIP"], status["hostIP"]) == ("127.0.0.1", "127.0.0.1")
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    assert status["containerStatuses"][0]["ready"]


async def test_memory_limit_kills(scene: Scene) -> None:
    eater = container(
        command=[PYTHON, "-c", "import time; x = b'x' * 200_000_000; time.sleep(1000)"],
        resources={"limits": {"memory": "100M"}},
    )
    async with scene.node():
        await scene.pod("a", eater)
        pod = await scene.ended("a")

    assert (terminated(pod)["exitCode"], terminated(pod)["reason"]) == (137, "OOMKilled")


async def test_termination_message_is_in_the_status(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "printf 'out of luck' > /dev/termination-log; exit 1")
        pod = await scene.ended("a")

    assert terminated(pod)["message"] == "out of luck"


async def test_environment_is_the_pods_and_little_else(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_NODE", "x")
    env = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "GREETING", "value": "hello $(WHO) $$(WHO) $(NOBODY)"},
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "p"}}},
    ]
    await scene.admin.create("configmaps", {"metadata": {"name": "settings"}, "data": {"k": "v"}}, scene.namespace)
    await scene.admin.create("secrets", {"metadata": {"name": "login"}, "stringData": {"p": "pw"}}, scene.namespace)
    script = 'echo "$GREETING,$KEY,$PASSWORD,$1,$A_SECRET_OF_THE_NODE,${PATH:+path}" > said'
    command = ["sh", "-c", script, "sh", "$(WHO)!"]
    async with scene.node():
        await scene.pod("a", container(command=command, env=env))
        await scene.ended("a")

    assert (scene.workdir / "said").read_text() == "hello a $(WHO) $(NOBODY),v,pw,a!,,path\n"


# --- what cannot run ---------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"args": ["--verbose"]}])
async def test_container_without_a_command_fails_with_the_reason(scene: Scene, fields: dict[str, Any]) -> None:
    async with scene.node():
        await scene.pod("a", container(**fields))
        pod = await scene.ended("a")

    status = pod["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "NoCommand")
    assert status["message"].startswith("container main has no command, and local mode has no image to take one from")
    assert state_of(pod)["waiting"]["reason"] == "CreateContainerConfigError"


async def test_command_that_is_not_there_is_named(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", container(command=["no-such-program"]))
        pod = await scene.ended("a")

    state = terminated(pod)
    assert (pod["status"]["phase"], state["exitCode"], state["reason"]) == ("Failed", 128, "StartError")
    assert state["message"] == 'exec: "no-such-program": executable file not found in $PATH'


async def test_volume_that_local_mode_does_not_have_fails_the_pod(scene: Scene) -> None:
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": "mine"}}
    async with scene.node():
        await scene.pod("a", "true", volumes=[volume])
        pod = await scene.ended("a")

    assert pod["status"]["reason"] == "UnsupportedVolume"
    assert pod["status"]["message"].startswith("volume disk is a persistentVolumeClaim, which local mode does not have")


async def test_container_waits_for_a_config_map(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.local.node.worker.RETRY_SECONDS", 0.1)
    env = [{"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "k"}}}]
    async with scene.node():
        await scene.pod("a", container('echo "$KEY" > said', env=env))
        waiting = await scene.until("a", lambda pod: state_of(pod)["waiting"]["message"])
        await scene.admin.create("configmaps", {"metadata": {"name": "later"}, "data": {"k": "v"}}, scene.namespace)
        await scene.ended("a")

    assert waiting["status"]["phase"] == "Pending"
    assert state_of(waiting)["waiting"] == {
        "reason": "CreateContainerConfigError",
        "message": 'configmap "later" not found',
    }
    assert (scene.workdir / "said").read_text() == "v\n"


async def test_pod_without_a_key_in_its_config_map_can_be_deleted(scene: Scene) -> None:
    env = [{"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}}]
    await scene.admin.create("configmaps", {"metadata": {"name": "settings"}}, scene.namespace)
    async with scene.node():
        await scene.pod("a", container("true", env=env))
        pod = await scene.until("a", lambda pod: state_of(pod)["waiting"]["message"])
        await scene.delete("a")

    message = f"couldn't find key k in ConfigMap {scene.namespace}/settings"
    assert state_of(pod)["waiting"]["message"] == message


# --- restarts ----------------------------------------------------------------------------------


async def test_failed_container_is_restarted_until_it_succeeds(scene: Scene) -> None:
    script = "echo x >> tries; [ $(wc -l < tries) -ge 3 ] || exit 5"
    async with scene.node():
        await scene.pod("a", script, policy="OnFailure")
        pod = await scene.ended("a")

    status = pod["status"]["containerStatuses"][0]
    assert (pod["status"]["phase"], status["restartCount"]) == ("Succeeded", 2)
    assert status["lastState"]["terminated"]["exitCode"] == 5


async def test_container_that_always_runs_is_started_again_after_success(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "echo x >> tries", policy="Always")
        pod = await scene.until("a", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] >= 2)

    assert pod["status"]["phase"] == "Running"


async def test_crash_loop_backs_off(scene: Scene) -> None:
    async with scene.node(restart_backoff=1000.0):
        await scene.pod("a", "exit 1", policy="Always")
        pod = await scene.until("a", lambda pod: state_of(pod)["waiting"]["reason"] == "CrashLoopBackOff")

    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    name = f"a_{scene.namespace}({pod['metadata']['uid']})"
    assert state_of(pod)["waiting"]["message"] == f"back-off 5m0s restarting failed container=main pod={name}"
    assert state_of(pod, field="lastState")["terminated"]["exitCode"] == 1


# --- several containers ------------------------------------------------------------------------


async def test_init_containers_run_one_after_the_other(scene: Scene) -> None:
    inits = [container(f"sleep 0.1; echo {name} >> order", name=name) for name in ("one", "two")]
    async with scene.node():
        await scene.pod("a", "echo main >> order", initContainers=inits)
        pod = await scene.ended("a")

    assert (scene.workdir / "order").read_text().split() == ["one", "two", "main"]
    assert [each["ready"] for each in pod["status"]["initContainerStatuses"]] == [True, True]


async def test_failed_init_container_fails_the_pod(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "echo main > order", initContainers=[container("exit 4", name="one")])
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod, "one")["exitCode"] == 4
    assert state_of(pod)["waiting"]["reason"] == "PodInitializing"
    assert not (scene.workdir / "order").exists()


async def test_failed_init_container_is_tried_again(scene: Scene) -> None:
    init = container("echo x >> tries; [ $(wc -l < tries) -ge 3 ]", name="one")
    async with scene.node():
        await scene.pod("a", "true", policy="OnFailure", initContainers=[init])
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded"
    assert pod["status"]["initContainerStatuses"][0]["restartCount"] == 2


async def test_sidecar_runs_beside_and_ends_with_the_pod(scene: Scene) -> None:
    sidecar = container("touch up; sleep 1000", name="side", restartPolicy="Always")
    async with scene.node():
        stored = await scene.pod(
            "a", "while [ ! -e up ]; do sleep 0.01; done", initContainers=[sidecar], terminationGracePeriodSeconds=5
        )
        pod = await scene.ended("a")

        assert pod["status"]["phase"] == "Succeeded"
        assert scene.processes(stored) == []


async def test_pod_ends_when_its_last_container_does(scene: Scene) -> None:
    async with scene.node():
        await scene.pod(
            "a", container("exit 0", name="quick"), container("while [ ! -e go ]; do sleep 0.01; done; exit 2")
        )
        half = await scene.until("a", lambda pod: terminated(pod, "quick"))
        (scene.workdir / "go").touch()
        pod = await scene.ended("a")

    assert half["status"]["phase"] == "Running"
    assert pod["status"]["phase"] == "Failed"
    assert (terminated(pod, "quick")["exitCode"], terminated(pod)["exitCode"]) == (0, 2)


# --- the end -----------------------------------------------------------------------------------


async def test_deleted_pod_is_gone_with_all_its_processes(scene: Scene) -> None:
    async with scene.node():
        pod = await scene.pod("a", "trap '' TERM; (sleep 1000 &); sleep 1000 & wait", terminationGracePeriodSeconds=1)
        await scene.running("a")
        assert len(scene.processes(pod)) >= 3
        await scene.delete("a")

        assert scene.processes(pod) == []
        await scene.forgotten(pod)


async def test_deleted_program_has_its_grace_period(scene: Scene) -> None:
    script = "trap 'sleep 0.3; echo bye > said; exit 0' TERM; touch up; while :; do sleep 0.02; done"
    async with scene.node():
        await scene.pod("a", script)
        await scene.appears("up")
        await scene.delete("a")

    assert (scene.workdir / "said").read_text() == "bye\n"


async def test_pod_that_is_deleted_by_force_is_ended(scene: Scene) -> None:
    async with scene.node():
        pod = await scene.pod("a", "trap '' TERM; sleep 1000 & wait; sleep 1000")
        await scene.running("a")
        await scene.delete("a", grace=0)

        await scene.forgotten(pod)
        assert scene.processes(pod) == []


async def test_pod_of_the_same_name_is_another_pod(scene: Scene) -> None:
    async with scene.node():
        first = await scene.pod("a", "sleep 1000")
        await scene.running("a")
        await scene.delete("a", grace=0)
        second = await scene.pod("a", "exit 6")
        pod = await scene.ended("a")

        await scene.forgotten(first)
        assert (pod["metadata"]["uid"], terminated(pod)["exitCode"]) == (second["metadata"]["uid"], 6)


async def test_deadline_ends_the_pod(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "sleep 1000", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
        pod = await scene.ended("a")

    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert pod["status"]["message"] == "Pod was active on the node longer than the specified deadline"


async def test_hooks_run_inside_of_the_container(scene: Scene) -> None:
    lifecycle = {
        "postStart": {"exec": {"command": ["sh", "-c", "echo $NAME started >> said"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo $NAME stops >> said"]}},
    }
    env = [{"name": "NAME", "value": "hook"}]
    async with scene.node():
        await scene.pod("a", container("sleep 1000", lifecycle=lifecycle, env=env))
        await scene.appears("said")
        await scene.delete("a")

    assert (scene.workdir / "said").read_text() == "hook started\nhook stops\n"


# --- the machine -------------------------------------------------------------------------------


async def test_two_nodes_on_one_folder_are_refused(scene: Scene) -> None:
    async with scene.node():
        with pytest.raises(BadConfig, match=r"^another node is running on .*; stop it, or choose another folder$"):
            async with scene.node():
                pass


async def test_events_describe_the_lifecycle_of_a_pod(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "sleep 1000")
        await scene.running("a")
        await scene.delete("a")
        events = await scene.admin.wait_list("events", scene.namespace, lambda found: len(found) >= 2)

    assert [(each["reason"], each["message"]) for each in events] == [
        ("Started", "Started container main"),
        ("Killing", "Stopping container main"),
    ]
    assert {each["involvedObject"]["name"] for each in events} == {"a"}


async def test_many_pods_start_together(scene: Scene) -> None:
    names = [f"p{number}" for number in range(20)]
    async with scene.node():
        await asyncio.gather(*(scene.pod(name, f"echo {name} >> {name}") for name in names))
        pods = await asyncio.gather(*(scene.ended(name) for name in names))

    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
    assert [(scene.workdir / name).read_text() for name in names] == [f"{name}\n" for name in names]


@pytest.mark.skipif(sys.platform != "linux", reason="user namespaces are Linux")
async def test_pod_without_namespaces_runs_and_mounts_are_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_NO_NAMESPACES", "1")
    mounts = [{"name": "v", "mountPath": "/data"}]
    async with scene.node():
        await scene.pod("a", "true")
        await scene.pod("b", container("true", volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}])
        plain, mounting = await scene.ended("a"), await scene.ended("b")

    assert plain["status"]["phase"] == "Succeeded"
    assert (mounting["status"]["phase"], mounting["status"]["reason"]) == ("Failed", "NamespacesNotAllowed")
    assert mounting["status"]["message"].startswith(
        "container main mounts v at /data, which needs Linux user namespaces, and this system does not allow them: "
    )


class Silent:
    """An API server that takes requests and never answers."""

    async def create(self, *_: object) -> None:
        await asyncio.Event().wait()


async def test_node_that_waits_for_the_api_can_be_stopped(tmp_path: Path, node_pair: Pair) -> None:
    stop = asyncio.Event()
    options = NodeOptions(
        name="n", folder=tmp_path, workdir=tmp_path, certificate=node_pair.certificate, key=node_pair.key
    )
    running = asyncio.ensure_future(run_node(cast(Cluster, Silent()), options, stop))
    stop.set()

    async with asyncio.timeout(20):
        await running
