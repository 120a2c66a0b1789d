"""Real HTTPS on loopback: an API server is nothing else."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import pytest
import structlog
from prometheus_client import REGISTRY

from tests.build import a_container, a_dijob, a_template, an_aitj
from tests.odd import MARK, VALUES, deep, with_value
from tests.webhook.build import Json, a_review, patch_in
from trainmaster.core.errors import BadConfig
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.webhook import server
from trainmaster.webhook.certificate import first_material, pem_of
from trainmaster.webhook.served import Served
from trainmaster.webhook.server import LARGEST, serve_admission

MATERIAL = first_material(frozenset({"127.0.0.1"}), datetime.now(UTC))
KINDS = all_resource_kinds(Settings())

DIJOB = "diengine-opendilab-org-v1alpha1-dijob"
VALIDATE = f"/validate-{DIJOB}"
MUTATE = f"/mutate-{DIJOB}"

GOOD = a_dijob(coordinator=a_template(a_container("di-container", command=["run"])), clean="All")
BAD = a_dijob("1st")


class Client:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, str]:
        async with self.session.post(path, data=body, **options) as response:
            return response.status, await response.text()

    async def ask(self, path: str, review: Json) -> Json:
        code, text = await self.post(path, msgspec.json.encode(review))
        assert code == 200, text
        response: Json = msgspec.json.decode(text)["response"]
        return response


def served() -> Served:
    found = Served()
    found.load(pem_of([MATERIAL.serving.certificate]), MATERIAL.serving.secret)
    return found


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=pem_of(MATERIAL.trusted).decode())


@asynccontextmanager
async def asking(port: int) -> AsyncIterator[Client]:
    connector = aiohttp.TCPConnector(ssl=trusting())
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:
        yield Client(session)
    # aiohttp cannot be asked when its TLS connections are gone; the loop is done with them one turn later
    await asyncio.sleep(0)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serve_admission("127.0.0.1:0", KINDS, served().context) as port, asking(port) as client:
        yield client


def counted(result: str, operation: str = "CREATE", phase: str = "validate", kind: str = "dijob") -> float:
    labels = {"phase": phase, "kind": kind, "operation": operation, "result": result}
    return REGISTRY.get_sample_value("trainmaster_admission_requests_total", labels) or 0.0


# --- reviews ---


async def test_a_good_job_is_allowed_and_counted(client: Client) -> None:
    before = counted("allowed")
    assert await client.ask(VALIDATE, a_review(GOOD)) == {"uid": "review-1", "allowed": True}
    assert counted("allowed") == before + 1


async def test_a_bad_job_is_refused_with_path_and_sentence_and_counted(client: Client) -> None:
    before = counted("refused")
    with structlog.testing.capture_logs() as logs:
        response = await client.ask(VALIDATE, a_review(BAD))

    assert not response["allowed"]
    assert response["status"]["message"].startswith("metadata.name: '1st' must start with a letter")
    assert [(line["event"], line["job"]) for line in logs] == [("job refused", "rl/1st")]
    assert counted("refused") == before + 1


async def test_a_job_is_defaulted(client: Client) -> None:
    response = await client.ask(MUTATE, a_review(a_dijob()))

    assert patch_in(response) == [{"op": "add", "path": "/spec/cleanPodPolicy", "value": "Running"}]


async def test_mutation_never_refuses(client: Client) -> None:
    assert (await client.ask(MUTATE, a_review(BAD | {"spec": 3})))["allowed"]


async def test_warnings_are_sent(client: Client) -> None:
    assert len((await client.ask(VALIDATE, a_review(a_dijob())))["warnings"]) == 1


@pytest.mark.parametrize("job", [GOOD, an_aitj()], ids=["DIJob", "AITrainingJob"])
@pytest.mark.parametrize("phase", ["mutate", "validate"])
async def test_every_kind_has_both_paths(client: Client, job: Json, phase: str) -> None:
    group, version = job["apiVersion"].replace(".", "-").split("/")
    path = f"/{phase}-{group}-{version}-{job['kind'].lower()}"

    assert (await client.ask(path, a_review(job)))["allowed"]


# --- everything else ---


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"", "no AdmissionReview", id="empty"),
        pytest.param(b"hello", "no AdmissionReview", id="not JSON"),
        pytest.param(msgspec.json.encode(a_review(an_aitj())), "this path reviews DIJob", id="another kind"),
        pytest.param(msgspec.json.encode(a_review(GOOD, object=None)), "without an object", id="no object"),
        pytest.param(b"[" * 200_000, "no AdmissionReview", id="deep"),
        pytest.param(b" " * (LARGEST + 1), f"larger than {LARGEST} bytes", id="huge"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("path", [VALIDATE, MUTATE])
async def test_a_bad_request_gets_a_sentence_and_the_next_one_an_answer(
    client: Client, path: str, body: bytes, said: str
) -> None:
    code, text = await client.post(path, body)

    assert (code, text.count("\n")) == (400, 1)
    assert said in text
    assert (await client.ask(path, a_review(GOOD)))["allowed"]


DEEP = GOOD | {"spec": GOOD["spec"] | {"x": MARK}}
NESTED = [200, 900, 950, 1500, 9000]
"""Levels that some decoders take, and levels that none takes."""


async def nested(client: Client, path: str, levels: int, job: Json = DEEP, **review: Any) -> Json:
    code, text = await client.post(path, with_value(a_review(job, **review), deep(levels)))
    assert code == 200, text
    response: Json = msgspec.json.decode(text)["response"]
    assert response["uid"] == "review-1"
    return response


@pytest.mark.parametrize("levels", NESTED[3:])
async def test_a_job_that_is_nested_too_deeply_is_refused_with_a_sentence_and_counted(
    client: Client, levels: int
) -> None:
    before = counted("refused")
    response = await nested(client, VALIDATE, levels)

    assert not response["allowed"]
    assert "nested too deeply" in response["status"]["message"]
    assert counted("refused") == before + 1


@pytest.mark.parametrize(("levels", "is_allowed"), [(200, True), (1500, False), (9000, False)])
async def test_an_update_that_makes_a_job_too_deep_is_refused(client: Client, levels: int, *, is_allowed: bool) -> None:
    assert (await nested(client, VALIDATE, levels, old=GOOD))["allowed"] == is_allowed


@pytest.mark.parametrize("levels", NESTED)
async def test_a_job_that_was_stored_too_deep_can_still_be_labelled_and_mended(client: Client, levels: int) -> None:
    labelled = DEEP | {"metadata": DEEP["metadata"] | {"labels": {"a": "b"}}}

    assert (await nested(client, VALIDATE, levels, labelled, old=DEEP))["allowed"]
    assert (await nested(client, VALIDATE, levels, GOOD, old=DEEP))["allowed"]
    assert not (await nested(client, VALIDATE, levels, BAD, old=DEEP))["allowed"]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"operation": "DELETE", "object": None, "oldObject": DEEP}, id="delete"),
        pytest.param({"subResource": "status", "old": GOOD}, id="status"),
    ],
)
async def test_what_is_not_ours_to_judge_is_allowed_however_deep_it_is(client: Client, request_: Json) -> None:
    assert (await nested(client, VALIDATE, 1500, **request_))["allowed"]


async def test_a_job_that_is_being_deleted_may_be_too_deep(client: Client) -> None:
    going = DEEP | {"metadata": DEEP["metadata"] | {"deletionTimestamp": "2026-11-15T12:00:00Z"}}

    assert (await nested(client, VALIDATE, 1500, going, old=GOOD))["allowed"]


@pytest.mark.parametrize("levels", NESTED)
async def test_mutation_leaves_a_job_that_is_too_deep_to_validation(client: Client, levels: int) -> None:
    assert (await nested(client, MUTATE, levels))["allowed"]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("value", VALUES)
async def test_whatever_the_spec_is_there_is_an_answer(client: Client, value: str) -> None:
    for path in (VALIDATE, MUTATE):
        code, text = await client.post(path, with_value(a_review(GOOD | {"spec": MARK}), VALUES[value]))
        assert code == 200, text


async def test_an_object_that_is_none_is_refused(client: Client) -> None:
    response = await client.ask(VALIDATE, a_review(GOOD, object=[1]))

    assert (response["allowed"], response["status"]["message"]) == (False, "object: it is no JSON object")


async def test_other_paths_and_methods_are_none(client: Client) -> None:
    assert (await client.post("/validate-v1-pod", b"{}"))[0] == 404
    async with client.session.get(VALIDATE) as response:
        assert response.status == 405


async def test_a_body_that_does_not_come_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_PATIENCE", 0.0)
    monkeypatch.setattr(server, "BODY_TIMEOUT", 0.05)
    never = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    async with client.session.post(VALIDATE, data=slowly()) as response:
        assert (response.status, await response.text()) == (400, "the body did not arrive within 0.05 s\n")


async def test_a_review_that_finds_no_room_is_told_to_come_again_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IN_FLIGHT", LARGEST)
    monkeypatch.setattr(server, "BODY_PATIENCE", 0.05)
    go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await go_on.wait()
        yield b"}"

    before = counted("busy", "unknown")
    async with serve_admission("127.0.0.1:0", KINDS, served().context) as port, asking(port) as client:
        slow = asyncio.ensure_future(client.post(VALIDATE, slowly()))
        found = 200
        while found == 200:  # until the slow one holds the budget
            async with client.session.post(VALIDATE, json=a_review(GOOD)) as response:
                found, retry_after = response.status, response.headers.get("Retry-After")
        go_on.set()

        assert (found, retry_after) == (503, "1")
        assert counted("busy", "unknown") == before + 1
        assert (await slow)[0] == 400
        assert (await client.ask(VALIDATE, a_review(GOOD)))["allowed"]


async def test_a_defect_costs_one_review(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    before = counted("failed")
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(server, "verdict", broken)
        code, text = await client.post(VALIDATE, msgspec.json.encode(a_review(GOOD)))

    assert (code, text) == (500, "the review failed; see the log of the webhook\n")
    assert logs[0]["event"].startswith("defect in trainmaster")
    assert counted("failed") == before + 1
    assert (await client.ask(VALIDATE, a_review(GOOD)))["allowed"]


# --- its life ---


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="silent"),
        pytest.param(f"POST {VALIDATE} HTTP/1.1\r\nHo".encode(), id="half a head"),
        pytest.param(f"POST {VALIDATE} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode(), id="half a body"),
    ],
)
async def test_a_client_that_does_not_go_on_does_not_hold_up_the_end(said: bytes) -> None:
    async with asyncio.timeout(8):
        async with serve_admission("127.0.0.1:0", KINDS, served().context) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
            writer.write(said)
            await writer.drain()
    writer.close()


async def test_one_that_leaves_sends_its_clients_away() -> None:
    is_leaving = False
    async with serve_admission("127.0.0.1:0", KINDS, served().context, lambda: is_leaving) as port:
        async with asking(port) as client:
            for expected in (None, "close"):
                async with client.session.post(VALIDATE, json=a_review(GOOD)) as response:
                    assert response.headers.get("Connection") == expected
                is_leaving = True


async def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(BadConfig, match="Address already in use; choose another address"):
            async with serve_admission(taken, KINDS, served().context):
                pass


async def test_nobody_without_tls_is_answered() -> None:
    async with serve_admission("127.0.0.1:0", KINDS, served().context) as port:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"http://127.0.0.1:{port}{VALIDATE}", data=b"{}")
