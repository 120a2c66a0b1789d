"""Who may use di-server of a local cluster: programs of a job, for their own job, and who has the cluster's token."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.cluster import DIJOB, client_of, create, items_of, until, until_running
from tests.local.conftest import Up
from tests.local.program import python
from tests.manifests.build import container, coordinated, template
from trainmaster.core.ids import POD

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="callers are found in /proc")

NOBODY = 65534
ASK = """
import encodings.idna, http.client, json, os, sys  # whoever becomes another user cannot import any more

def ask(server, method, path, body="", **headers):
    line = http.client.HTTPConnection(server, timeout=30)
    line.request(method, path, body, headers)
    answer = line.getresponse()
    return answer.status, answer.read().decode()
"""
SEND = f"""{ASK}
server, requests, user = sys.argv[1:]
if user:
    os.setgid(int(user))
    os.setuid(int(user))
print(json.dumps([ask(server, *each[:3], **each[3]) for each in json.loads(requests)]))
"""
WAIT = ["sh", "-c", "exec sleep 1000"]

Request = tuple[str, str, str, dict[str, str]]


def of(job: str, **headers: str) -> Request:
    return "GET", f"/v1alpha1/replicas?namespace=default&coordinator={job}-coordinator", "", headers


def grow(job: str, **headers: str) -> Request:
    body = {"namespace": "default", "coordinator": f"{job}-coordinator", "collectors": {"replicas": 1}}
    return "POST", "/v1alpha1/replicas", json.dumps(body), headers


def report(job: str) -> Request:
    body = {"namespace": "default", "coordinator": f"{job}-coordinator", "collectors": []}
    return "POST", "/v1alpha1/replicas/failed", json.dumps(body), {}


def shrink(job: str) -> Request:
    return "DELETE", *grow(job)[1:]


LIST: Request = ("GET", "/v1alpha1/replicas", "", {})
METRICS: Request = ("GET", "/metrics", "", {})


def idle(name: str) -> dict[str, Any]:
    """A job whose programs do nothing."""
    return coordinated(
        template(container(command=WAIT)), name, collector={"template": template(container(command=WAIT))}
    )


def asking(name: str, answers: Path, requests: list[Request], server: str = "") -> dict[str, Any]:
    """A job whose coordinator sends these requests, once, and writes the answers; to the server in its environment,
    unless ``server`` is another."""
    script = f"""{ASK}
import time
requests = {requests!r}
server = {server!r} or os.environ["KUBERNETES_SERVER_URL"]
found = [ask(server, *each[:3], **each[3]) for each in requests]
with open({str(answers)!r} + ".new", "w") as file:
    json.dump(found, file)
os.replace({str(answers)!r} + ".new", {str(answers)!r})
time.sleep(1000)
"""
    return coordinated(
        template(container(command=python(script))),
        name,
        collector={"template": template(container(command=WAIT))},
    )


def sent(server: str, requests: list[Request], *, user: int | None = None) -> list[tuple[int, str]]:
    """The answers to a program of this user that is in no pod."""
    command = [sys.executable, "-c", SEND, server, json.dumps(requests), "" if user is None else str(user)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [tuple(each) for each in json.loads(done.stdout)]


def server_of(state: Path) -> str:
    return f"127.0.0.1:{(state / 'server-port').read_text()}"


async def until_written(file: Path) -> list[tuple[int, dict[str, Any]]]:
    await until(file.exists)
    return [(status, json.loads(text)) for status, text in json.loads(file.read_text())]  # noqa: ASYNC240


async def test_a_program_of_a_job_acts_on_its_own_job_only(up: Up, state: Path, tmp_path: Path) -> None:
    up()
    requests = [of("mine"), grow("mine"), LIST, of("other"), grow("other"), shrink("other"), report("other")]
    async with client_of(state) as cluster:
        await create(cluster, idle("other"))
        await until_running(cluster, 1)
        await create(cluster, asking("mine", tmp_path / "answers", requests))
        answers = await until_written(tmp_path / "answers")
        jobs = {job["metadata"]["name"]: job for job in await items_of(cluster, DIJOB)}

    assert [status for status, _ in answers] == [200, 200, 200, 404, 404, 404, 404]
    own, grown, listed, *refused = [answer for _, answer in answers]
    assert (own["success"], grown["success"]) == (True, True)
    assert len(grown["data"]["collectors"]) == 1
    assert [each["coordinator"] for each in listed["data"]] == ["mine-coordinator"]
    assert {answer["success"] for answer in refused} == {False}
    assert jobs["other"]["status"].get("declared", {}).get("members", {}) == {}


DAEMON = """
import os
if os.fork():
    os.wait()
    import time; time.sleep(1000)
os.setsid()
if os.fork():
    os._exit(0)
import sys
only = {"KUBERNETES_SERVER_URL": os.environ["KUBERNETES_SERVER_URL"]}
os.execve(sys.executable, [sys.executable, "-c", SCRIPT], only)
"""


async def test_a_daemon_with_an_environment_of_its_own_still_belongs_to_its_job(
    up: Up, state: Path, tmp_path: Path
) -> None:
    up()
    job = asking("mine", tmp_path / "answers", [of("mine")])
    main = job["spec"]["coordinator"]["template"]["spec"]["containers"][0]
    main["command"][-1] = f"SCRIPT = {main['command'][-1]!r}\n{DAEMON}"
    async with client_of(state) as cluster:
        await create(cluster, job)
        ((status, answer),) = await until_written(tmp_path / "answers")

    assert (status, answer["success"]) == (200, True)


@pytest.mark.parametrize(
    "user",
    [
        pytest.param(None, id="this user, in no pod"),
        pytest.param(
            NOBODY,
            id="another user",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
        ),
    ],
)
async def test_a_program_in_no_pod_is_refused(up: Up, state: Path, user: int | None) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, idle("job"))
        await until_running(cluster, 1)
        answers = sent(
            server_of(state), [LIST, of("job"), grow("job"), shrink("job"), report("job"), METRICS], user=user
        )
        pods = await items_of(cluster, POD)

    assert [status for status, _ in answers] == [403] * 6
    assert "call from inside a job, or with the token in" in answers[0][1]
    assert [pod["metadata"]["name"] for pod in pods] == ["job-coordinator"]


async def test_the_clusters_token_opens_every_job(up: Up, state: Path) -> None:
    up()
    token = (state / "token").read_text().strip()
    right, wrong = {"Authorization": f"Bearer {token}"}, {"Authorization": "Bearer wrong"}
    async with client_of(state) as cluster:
        await create(cluster, idle("job"))
        await until_running(cluster, 1)
        answers = sent(
            server_of(state),
            [
                of("job", **right),
                grow("job", **right),
                (*METRICS[:3], right),
                of("job", **wrong),
                (*METRICS[:3], wrong),
            ],
        )

    assert [status for status, _ in answers] == [200, 200, 200, 403, 403]


async def test_web_pages_are_refused_in_pods_too(up: Up, state: Path, tmp_path: Path) -> None:
    """A browser names the page that sends a request, or, after its name server has lied to it, another host."""
    up()
    origin, host = {"Origin": "http://evil.example"}, {"Host": "evil.example"}
    requests = [of("mine", **origin), grow("mine", **origin), of("mine", **host), grow("mine", **host), of("mine")]
    async with client_of(state) as cluster:
        await create(cluster, asking("mine", tmp_path / "answers", requests))
        answers = await until_written(tmp_path / "answers")

    assert [status for status, _ in answers] == [403, 403, 403, 403, 200]
