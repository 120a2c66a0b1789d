"""Learners of several GPUs on one machine: their groups share its network, and none takes another's ports."""

from pathlib import Path

import pytest

from tests.local.conftest import Start
from tests.local.program import containers_of, python, written
from tests.local.test_gpu import give_gpus
from tests.manifests.build import Manifest, container, dijob, template

GROUPS, GPUS = 2, 3

LISTEN = """
import os, signal, socket

def listen(port):
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    line.bind(("127.0.0.1", port))
    line.listen()
    lines.append(line)

lines, number = [], lambda name: int(os.environ[name])
"""
AGGREGATOR = (
    LISTEN
    + """
listen(number("AGGREGATOR_PORT"))
listen(number("AGGREGATOR_PORT") + 1)  # where DI-engine's is the master of its learners
signal.pause()
"""
)
LEARNER = (
    LISTEN
    + """
for rank in range(number("LOCAL_WORLD_SIZE")):
    listen(number("LEARNER_PORT") + number("START_RANK") + rank)
listen(number("MASTER_PORT"))
signal.pause()
"""
)
COORDINATOR = f"""
import http.client, json, os, socket, time

def ask(method, query="", **wanted):
    body = {{"namespace": "default", "coordinator": os.environ["KUBERNETES_POD_NAME"], **wanted}}
    while True:
        line = http.client.HTTPConnection(os.environ["KUBERNETES_SERVER_URL"])
        line.request(method, "/v1alpha1/replicas" + query, json.dumps(body))
        answer = json.loads(line.getresponse().read())
        if answer["success"]:
            return answer["data"]["learners"]
        time.sleep(0.1)

def meet(url):
    host, port = url.split(":")
    while True:
        try:
            socket.create_connection((host, int(port))).close()
            return print("met", url, flush=True)
        except OSError:
            time.sleep(0.1)

for aggregator in ask("POST", learners={{"replicas": {GROUPS}, "gpus": {GPUS}}}):
    meet(aggregator)
    found = ask("GET", "?namespace=default&aggregator=" + aggregator.partition(".")[0])
    assert len(found) == {GPUS}, found
    for learner in found:
        meet(learner)
"""


def aggregator_config() -> Manifest:
    body = {"aggregator": {"template": template(container(command=python(AGGREGATOR)))}}
    metadata = {"name": "aggregator-config", "namespace": "di-system"}
    return {
        "apiVersion": "diengine.opendilab.org/v1alpha1",
        "kind": "AggregatorConfig",
        "metadata": metadata,
        "spec": body,
    }


def test_groups_of_learners_on_one_machine_do_not_meet_each_other(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_gpus(GROUPS * GPUS, tmp_path / "bin", monkeypatch)
    job = dijob(
        "job",
        coordinator={"template": template(container(command=python(COORDINATOR)))},
        learner={"template": template(container(command=python(LEARNER)))},
    )

    code, said, errors = start("run", written(tmp_path, aggregator_config(), job), "--timeout", "1m").end()

    assert code == 0, said + errors
    met = [line.rpartition(" ")[2] for line in said.splitlines() if " met " in line]
    assert len(met) == len(set(met)) == GROUPS * (1 + GPUS)
    assert len({url.rpartition(":")[2] for url in met}) == len(met)
    assert containers_of(tmp_path) == []
