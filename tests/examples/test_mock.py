"""The programs of examples/mock: they speak DI-engine's protocol, and tell the story that users of DI-engine know."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.mock.aggregator import Aggregator
from examples.mock.collector import Collector
from examples.mock.learner import Learner
from examples.mock.master import Master
from examples.mock.slave import Slave, TaskFailed, code_of, send
from examples.mock.task import Queue
from examples.rl import web
from examples.rl.diserver import DiServer, NotYet, Replicas, pods
from examples.rl.web import Call, Refused, call, split
from testbed.operator import REPOSITORY
from tests.examples.conftest import Listen
from tests.examples.standin import StandIn, commands_in

MANIFEST = "examples/dijob-mock.yaml"
FAST = {"MOCK_PACE": "0.05"}
AGGREGATOR = (["python3", "-m", "examples.mock.aggregator"], dict[str, str]())


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandIn]:
    roles = {role: (command, env | FAST) for role, (command, env) in commands_in(MANIFEST).items()}
    roles["aggregator"] = (AGGREGATOR[0], FAST)
    with StandIn("dijob-example-1", roles, tmp_path).serving() as stand_in:
        yield stand_in


@pytest.fixture
def master(listen: Listen) -> Master:
    master = Master()
    master.port = split(listen(master.routes))[1]
    return master


# --- the story ---

ID = r"PID\d+UUID[0-9a-f-]{36}_\d+\.\d+"
WHO = rf"\[Coordinator\({ID}\)\]: "
URL = r"'dijob-example-1-{}-\d{{5}}\.default:\d+'"
COLLECTOR, LEARNER = URL.format("collector"), URL.format("learner")
ME = "'namespace': 'default', 'coordinator': 'dijob-example-1-coordinator'"
TWO_OF_EACH = rf"'collectors': \[{COLLECTOR}, {COLLECTOR}\], 'learners': \[{LEARNER}, {LEARNER}\]"
STORY = (
    rf"Recevied replicas response from server {{{ME}, {TWO_OF_EACH}}}",
    r"Have connected [12] collectors, [12] learners, match limit requests\.",
    r"Start\.\.\.",
    rf"{WHO}learner task\(learner_task_{ID}\) put into queue",
    rf"{WHO}collector task\(collector_task_{ID}\) put into queue",
    rf"{WHO}collector_task\(collector_task_{ID}\) can't find proper buffer_id\(buffer_{ID}\)",
    rf"{WHO}collector task\(collector_task_{ID}\) reput into queue",
    rf"{WHO}replay_buffer\(buffer_{ID}\) is created",
    rf"{WHO}learner_task\(learner_task_{ID}\) is successful to be assigned",
    rf"collector task\(collector_task_{ID}\) is assigned to collector\({COLLECTOR[1:-1]}\)",
    rf"{WHO}collector_task\(collector_task_{ID}\) is successful to be assigned",
    rf"{WHO}collector task\(collector_task_{ID}\) send data\([0-9a-f-]{{36}}\)",
    rf"currnet list: \[{COLLECTOR}\] \[{LEARNER}, {LEARNER}\]",  # one collector has gone
    r"\[DI parallel pipeline\]Your RL agent is converged, the training is over",
)


def test_the_coordinator_tells_the_story_of_a_training_and_ends_well(stand_in: StandIn) -> None:
    coordinator = stand_in.coordinator()
    for line in STORY:
        coordinator.until(f"^{line}$")
    code = coordinator.ended()

    told = "\n".join(coordinator.lines)
    assert code == 0, told
    for role, addresses in (("collector", 2), ("learner", 2)):
        assert len(set(re.findall(rf"try to connect to (dijob-example-1-{role}\S+)", told))) == addresses
    (deleted,) = re.findall(rf"send delete and received .*'collectors': \[({COLLECTOR})\], 'learners': \[\]", told)
    assert deleted.strip("'") not in [pod.url for pod in stand_in.of("collector")]
    assert len(stand_in.of("collector")) == 1
    assert "failed list: [] []" in coordinator.lines
    assert "Traceback" not in told


def test_with_an_aggregator_the_learners_are_its_own(stand_in: StandIn) -> None:
    aggregator = stand_in.start("aggregator", {"KUBERNETES_AGGREGATOR_URL": "me"}, "dijob-example-1-aggregator")
    stand_in.pods.pop(aggregator.name)  # the operator made it, not di-server
    try:
        coordinator = stand_in.coordinator(KUBERNETES_AGGREGATOR_URL=aggregator.url)
        coordinator.until(rf"^try to connect to {aggregator.url}$")
        coordinator.until(rf"^can't acquire resource for learner\({aggregator.url}\)$")
        coordinator.until(rf"^Successed to connect to {aggregator.url}$")
        coordinator.until(r"^have connected to aggregator$")
        coordinator.until(r"^Have connected [12] collectors, 1 learners, match limit requests\.$")
        coordinator.until(r"send data")
        code = coordinator.ended()
    finally:
        with aggregator.process as process:
            process.kill()

    assert code == 0, coordinator.lines
    assert not re.search(r"try to connect to dijob-example-1-learner", "\n".join(coordinator.lines))


def test_a_collector_and_a_learner_that_are_killed_are_replaced_and_the_story_goes_on(stand_in: StandIn) -> None:
    coordinator = stand_in.coordinator(MOCK_SEED="2")  # a long one
    coordinator.until(r"send delete and received")
    coordinator.until(r"send data")
    old = [stand_in.of("collector")[0], *stand_in.of("learner")]
    for pod in old:
        pod.process.kill()
    coordinator.until(r"Successed to connect to dijob-example-1-collector")
    coordinator.until(r"send data")

    assert coordinator.ended() == 0, coordinator.lines
    assert not {pod.url for pod in old} & {pod.url for pod in stand_in.pods.values()}
    assert "Traceback" not in "\n".join(coordinator.lines)


def test_a_coordinator_without_di_server_says_so(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "COORDINATOR_PORT": "0", "KUBERNETES_SERVER_URL": "http://127.0.0.1:1/"}
    env |= {"KUBERNETES_POD_NAME": "c", "KUBERNETES_POD_NAMESPACE": "localhost"}
    script = "from examples.rl import diserver; diserver.DiServer.ask.__kwdefaults__['patience'] = 0; "
    script += "from examples.mock.coordinator import main; main()"

    run = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=30
    )

    assert run.returncode == 1
    assert re.fullmatch(r"di-server gave us no replicas: .*refused\n", run.stderr)


# --- master and slave ---


def test_a_task_is_done_or_fails_and_the_master_hears_of_it(master: Master, listen: Listen) -> None:
    slave = listen(Slave(Learner().perform).routes)
    master.connect(slave, "learner")

    assert master.perform(slave, "resource", {}) == {"cpu": os.cpu_count(), "gpu": 0}
    assert master.perform(slave, "learner_learn_task", {"values": [1, 2.5]}) == {"total": 3.5, "is_done": False}
    with pytest.raises(TaskFailed, match="a learner does not know dance"):
        master.perform(slave, "dance", {})
    with pytest.raises(TaskFailed, match="could not convert"):
        master.perform(slave, "learner_learn_task", {"values": ["many"]})
    master.disconnect(slave)
    with pytest.raises(ConnectionError, match="is not connected"):
        master.perform(slave, "resource", {})


def test_a_slave_has_one_master_and_one_task_at_a_time(master: Master, listen: Listen) -> None:
    go_on, is_busy = threading.Event(), threading.Event()

    def perform(name: str, data: dict[str, Any]) -> dict[str, Any]:
        is_busy.set()
        go_on.wait(10)
        return {}

    slave = listen(Slave(perform).routes)
    master.connect(slave, "collector")
    with pytest.raises(Refused) as connected:
        Master().connect(slave, "collector")
    working = threading.Thread(target=master.perform, args=(slave, "work", {}))
    working.start()
    is_busy.wait(10)
    with pytest.raises(Refused) as busy:
        master.perform(slave, "more", {})
    go_on.set()
    working.join()

    assert (connected.value.status, code_of(connected.value)) == (400, 501)
    assert (busy.value.status, code_of(busy.value)) == (400, 601)
    assert master.perform(slave, "later", {}) == {}


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "/disconnect"), ("POST", "/task/new"), ("DELETE", "/shutdown")]
)
def test_a_slave_obeys_only_its_master(master: Master, listen: Listen, method: str, path: str) -> None:
    slave = listen(Slave(Learner().perform).routes)
    body = {"task": {"id": "1"}, "data": {"name": "resource"}}
    with pytest.raises(Refused) as alone:
        send(method, slave, path, body, "")
    master.connect(slave, "learner")
    with pytest.raises(Refused) as foreign:
        send(method, slave, path, body, "of somebody else")

    assert [code_of(alone.value), code_of(foreign.value)] == [502, 502]
    assert master.perform(slave, "resource", {})


def test_a_master_listens_only_to_its_slaves(master: Master) -> None:
    for method, path in (("GET", "/slave/heartbeat"), ("PUT", "/slave/task/complete"), ("PUT", "/slave/task/fail")):
        with pytest.raises(Refused) as refused:
            send(method, f"127.0.0.1:{master.port}", path, {"task": {"id": "1"}, "result": {}}, "unknown")
        assert code_of(refused.value) == 502


def test_a_slave_that_is_silent_for_too_long_is_not_counted(
    master: Master, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.connect(listen(Slave(Learner().perform).routes), "learner")
    assert len(master.connected("learner")) == 1
    assert master.connected("collector") == []

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 18)

    assert master.connected("learner") == []


def test_a_slave_that_was_born_again_is_forgotten_and_met_anew(master: Master, listen: Listen) -> None:
    lives = [Slave(Learner().perform), Slave(Learner().perform)]
    routes = dict(lives[0].routes)
    slave = listen(routes)
    master.connect(slave, "learner")
    routes.update(lives[1].routes)
    with pytest.raises(Refused):
        master.perform(slave, "resource", {})

    assert master.connected("learner") == []
    assert master.try_to_connect(slave, "learner")
    assert master.perform(slave, "resource", {})


def test_an_aggregator_shares_a_batch_and_adds_up_what_comes_of_it(listen: Listen) -> None:
    aggregator = Aggregator(0)
    aggregator.master.port = split(listen(aggregator.master.routes))[1]
    with pytest.raises(TaskFailed, match="no learner is connected"):
        aggregator.perform("resource", {})
    learners = [Learner(), Learner()]
    for learner in learners:
        aggregator.master.connect(listen(Slave(learner.perform).routes), "learner")

    assert aggregator.perform("learner_get_data_task", {}) == {"batch_size": 2}
    done = aggregator.perform("learner_learn_task", {"values": [1, 2, 3, 4]})

    assert (done["world_size"], done["total"]) == (2, 10)
    assert [learner.total for learner in learners] == [4, 6]


@pytest.mark.parametrize("body", ["{}", '"learner"', "[1]", "no json"])
def test_an_aggregator_takes_only_a_list_of_addresses(listen: Listen, body: str) -> None:
    address = listen({("POST", "/learners"): Aggregator(0).told})
    with pytest.raises(Refused) as refused:
        call("POST", address, "/learners", body.encode(), timeout=10)
    assert refused.value.status == 400


def test_a_collector_makes_one_to_five_pieces_of_data_and_the_same_for_the_same_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("examples.mock.pace.PACE", 0.0)

    def pieces(collector: Collector) -> list[float]:
        collector.perform("collector_start_task", {})
        found: list[dict[str, Any]] = []
        while not found or not found[-1]["is_last"]:
            found.append(collector.perform("collector_data_task", {}))
        return [piece["value"] for piece in found]

    collector = Collector("7")
    values = [pieces(collector) for _ in range(20)]

    assert {len(each) for each in values} == {1, 2, 3, 4, 5}
    again = Collector("7")
    assert [pieces(again) for _ in range(20)] == values


def test_a_task_that_nobody_can_do_goes_back_and_is_given_up_after_five_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1000.0]
    monkeypatch.setattr("examples.mock.task.time.time", lambda: now[0])
    tasks = Queue("me")
    tasks.put("collector")
    tried = 0
    while tasks.count("collector"):
        for task in tasks.take("collector"):
            tried += 1
            tasks.put_back(task)
        now[0] += 0.5

    lines = capsys.readouterr().out.splitlines()
    assert tried == 5  # at 0, 1.5, 3, 4.5 and 6 seconds
    assert lines[1:-1] == [lines[1]] * 4
    assert re.fullmatch(r"\[me\]: collector task\(\S+\) timeout: \[1006\.0, 1000\.0, 6\.0/5\]", lines[-1])


# --- di-server, seen from here ---


def test_di_server_is_spoken_to_as_its_own_client_does(listen: Listen) -> None:
    calls: list[tuple[str, dict[str, Any], set[str]]] = []

    def answer(method: str) -> web.Handler:
        def handler(request: Call) -> bytes:
            calls.append((method, json.loads(request.body), set(request.headers)))
            return json.dumps({"success": True, "code": 0, "data": {"collectors": ["a.ns:1"], "learners": []}}).encode()

        return handler

    routes = {(method, "/v1alpha1/replicas"): answer(method) for method in ("GET", "POST", "DELETE")}
    routes["POST", "/v1alpha1/replicas/failed"] = answer("failed")
    address = listen(routes)
    for form in (address, f"http://{address}", f"http://{address}/"):
        environ = {"KUBERNETES_SERVER_URL": form, "KUBERNETES_POD_NAMESPACE": "ns", "KUBERNETES_POD_NAME": "job-c"}
        assert DiServer(environ).replicas() == Replicas(["a.ns:1"], [])
    server = DiServer(environ)
    server.ask(2, 1)
    server.remove(1, 0)
    server.report_failed(Replicas(["job-collector-x.ns:80"], ["job-learner-y.ns:80"]))

    me = {"namespace": "ns", "coordinator": "job-c"}
    assert [(method, body) for method, body, _ in calls[2:]] == [
        ("GET", {}),
        ("POST", {**me, "collectors": {"replicas": 2}, "learners": {"replicas": 1}}),
        ("DELETE", {**me, "collectors": {"replicas": 1}, "learners": {"replicas": 0}}),
        ("failed", {**me, "collectors": ["job-collector-x"], "learners": ["job-learner-y"]}),
    ]
    assert all("content-type" not in headers for _, _, headers in calls)


def test_what_di_server_cannot_do_now_is_asked_again_and_what_it_refuses_is_not(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.rl.diserver.PAUSE", 0.0)
    answers = iter([{"success": False}, {"success": False}, {"success": True, "data": {"collectors": []}}])
    address = listen({("POST", "/v1alpha1/replicas"): lambda _: json.dumps(next(answers)).encode()})
    environ = {"KUBERNETES_SERVER_URL": address, "KUBERNETES_POD_NAMESPACE": "ns", "KUBERNETES_POD_NAME": "job-c"}

    assert DiServer(environ).ask(1, 1) == {"collectors": []}
    with pytest.raises(Refused, match="404: GET /v1alpha1/replicas"):
        DiServer(environ).replicas()


@pytest.mark.parametrize(
    "answer", [b"[]", b'{"success": true, "data": [1]}', b'{"success": true, "data": {"learners": [1]}}', b"no json"]
)
def test_an_answer_that_is_none_of_di_server_is_trouble_but_not_the_end(listen: Listen, answer: bytes) -> None:
    address = listen({("GET", "/v1alpha1/replicas"): lambda _: answer})
    environ = {"KUBERNETES_SERVER_URL": address, "KUBERNETES_POD_NAMESPACE": "ns", "KUBERNETES_POD_NAME": "job-c"}

    with pytest.raises(ValueError):
        DiServer(environ).replicas()


def test_patience_with_di_server_ends(listen: Listen) -> None:
    address = listen({("POST", "/v1alpha1/replicas"): lambda _: b'{"success": false, "message": "soon"}'})
    environ = {"KUBERNETES_SERVER_URL": address, "KUBERNETES_POD_NAMESPACE": "ns", "KUBERNETES_POD_NAME": "job-c"}

    with pytest.raises(NotYet, match="soon"):
        DiServer(environ).ask(1, 1, patience=-1)


def test_the_name_of_a_pod_is_in_its_address() -> None:
    assert pods(["job-collector-x.default:80", "a.b:1"]) == ["job-collector-x", "a"]


# --- HTTP ---


@pytest.mark.parametrize("address", ["", "host", ":80", "host:", "host:port", "http://host", "https://host:1/x"])
def test_what_is_no_address_is_refused_with_a_sentence(address: str) -> None:
    with pytest.raises(ValueError, match=r"is no address: it should be like host:8080"):
        split(address)


def test_bodies_have_a_limit_on_both_sides(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "LIMIT", 100)
    address = listen({("POST", "/echo"): lambda request: request.body, ("GET", "/long"): lambda _: b"x" * 101})

    assert call("POST", address, "/echo", b"x" * 100, timeout=10) == b"x" * 100
    with pytest.raises(Refused, match="413: a body has at most 100 bytes"):
        call("POST", address, "/echo", b"x" * 101, timeout=10)
    with pytest.raises(ConnectionError, match="more than 100 bytes"):
        call("GET", address, "/long", timeout=10)


def test_a_worker_listens_only_on_loopback_when_its_name_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"local": "127.0.0.1", "cluster": "10.0.0.7"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *_: [(0, 0, 0, "", (found[name.split(".")[0]], 0))])
    monkeypatch.setenv("KUBERNETES_POD_NAMESPACE", "default")
    bound = []
    for name in found:
        monkeypatch.setenv("KUBERNETES_POD_NAME", name)
        bound.append(web.own_address())

    assert bound == ["127.0.0.1", ""]
