"""Service accounts: a container is known to the API server as its pod, for as long as there is one."""

from typing import Any

import msgspec
import pytest

from tests.local.node.build import NOW, a_container, a_pod, moment
from tests.local.node.life import Scene, container, state_of
from trainmaster.cli.node import _access
from trainmaster.core.errors import Forbidden
from trainmaster.core.ids import Key
from trainmaster.kube.config import Config
from trainmaster.local.node.account import Access, Tokens, without_account
from trainmaster.local.node.environment import BadReference, Token
from trainmaster.local.node.volume import token_references

Object = dict[str, Any]

HOUR = Token("", 3600)
INJECTED = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
VOLUME = {
    "name": "kube-api-access-x",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ]
    },
}


# --- without an API server ---------------------------------------------------------------------


def test_injected_token_is_left_out() -> None:
    mine = {"name": "mine", "emptyDir": {}}
    mounting = a_container(volumeMounts=[INJECTED, {"name": "mine", "mountPath": "/mine"}])

    pod = without_account(a_pod(mounting, initContainers=[mounting], volumes=[VOLUME, mine]))

    assert [*pod.volumes] == ["mine"]
    for each in (*pod.containers, *pod.init_containers):
        assert [mount["name"] for mount in each["volumeMounts"]] == ["mine"]


def test_pod_without_a_token_stays_as_it_is() -> None:
    pod = a_pod()

    assert without_account(pod) is pod


def test_tokens_are_found_in_volumes() -> None:
    other = {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}

    assert [*token_references(a_pod(volumes=[VOLUME, other]))] == [Token("", 3607), Token("vault", 3600)]


class Issuer:
    """Answers each TokenRequest with another token that is valid for an hour."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOW
        self.asked: list[tuple[Key, Object]] = []
        monkeypatch.setattr("trainmaster.local.node.account.time.time", lambda: self.now)

    async def request(self, account: Key, body: bytes) -> bytes:
        self.asked.append((account, msgspec.json.decode(body)["spec"]))
        end = moment(self.now - NOW + 3600)[:19] + "Z"
        status = {"token": f"token-{len(self.asked)}", "expirationTimestamp": end}
        return msgspec.json.encode({"kind": "TokenRequest", "status": status})

    @property
    def access(self) -> Access:
        return Access("127.0.0.1", 6443, self.request)


async def test_token_is_bound_to_the_pod_and_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer, pod = Issuer(monkeypatch), a_pod(serviceAccountName="trainer")
    tokens = Tokens(issuer.access)

    for _ in range(2):
        assert await tokens.get(pod, [HOUR]) == {HOUR: b"token-1"}

    bound = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": "uid-1"}
    assert issuer.asked == [(Key("ns", "trainer"), {"expirationSeconds": 3600, "boundObjectRef": bound})]


async def test_token_for_another_audience_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = Issuer(monkeypatch)
    await Tokens(issuer.access).get(a_pod(), [Token("vault", 600)])

    [(account, spec)] = issuer.asked
    assert (account, spec["audiences"], spec["expirationSeconds"]) == (Key("ns", "default"), ["vault"], 600)


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        pytest.param(2879, b"token-1", id="young enough"),
        pytest.param(2881, b"token-2", id="four fifths of its life are over"),
    ],
)
async def test_token_is_replaced_before_it_ends(monkeypatch: pytest.MonkeyPatch, later: int, expected: bytes) -> None:
    issuer = Issuer(monkeypatch)
    tokens = Tokens(issuer.access)
    await tokens.get(a_pod(), [HOUR])

    issuer.now += later

    assert await tokens.get(a_pod(), [HOUR]) == {HOUR: expected}


async def test_refused_token_request_has_a_message() -> None:
    async def request(account: Key, body: bytes) -> bytes:
        raise Forbidden("create serviceaccounts ns/default: no")

    with pytest.raises(BadReference) as told:
        await Tokens(Access("127.0.0.1", 6443, request)).get(a_pod(), [HOUR])

    assert str(told.value) == (
        "MountVolume.SetUp failed: failed to fetch token of default: create serviceaccounts ns/default: no"
    )


# --- with a real one ---------------------------------------------------------------------------

SCRIPT = """
cd /var/run/secrets/kubernetes.io/serviceaccount
{ cat token; echo; cat namespace; echo; cat ca.crt; echo; } > $OUT
echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT >> $OUT
"""


async def account(scene: Scene) -> None:
    """What the controllers of a cluster make in every namespace."""
    await scene.admin.create("serviceaccounts", {"metadata": {"name": "trainer"}}, scene.namespace)
    ca = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "CA"}}
    await scene.admin.create("configmaps", ca, scene.namespace)


async def review(scene: Scene, token: str) -> Object:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await scene.admin.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
    status: Object = answer["status"]
    return status


async def test_container_is_known_to_the_api_server_as_its_pod(scene: Scene) -> None:
    await account(scene)
    out = {"name": "OUT", "value": str(scene.workdir / "said")}
    async with scene.node(has_accounts=True):
        await scene.pod(
            "a",
            container(SCRIPT, volumeMounts=[{**INJECTED, "readOnly": True}], env=[out]),
            serviceAccountName="trainer",
            volumes=[VOLUME],
        )
        pod = await scene.ended("a")
        assert pod["status"]["phase"] == "Succeeded", pod["status"]
        token, namespace, ca, server = (scene.workdir / "said").read_text().split()
        known = await review(scene, token)

    assert (namespace, ca, f"https://{server}") == (scene.namespace, "CA", scene.plane.url)
    assert known["authenticated"]
    assert known["user"]["username"] == f"system:serviceaccount:{scene.namespace}:trainer"
    assert known["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["a"]


async def test_container_waits_for_its_service_account(scene: Scene) -> None:
    async with scene.node(has_accounts=True):
        await scene.pod("a", container("true", volumeMounts=[INJECTED]), serviceAccountName="none", volumes=[VOLUME])
        pod = await scene.until("a", lambda pod: state_of(pod)["waiting"]["message"])

    waiting = state_of(pod)["waiting"]
    assert waiting["reason"] == "ContainerCreating"
    assert waiting["message"].startswith("MountVolume.SetUp failed: failed to fetch token of none: ")


async def test_token_of_a_running_container_is_kept_up_to_date_by_the_next_node(scene: Scene) -> None:
    await account(scene)
    copy = "cp /var/run/secrets/kubernetes.io/serviceaccount/token $OUT"
    watch = "until ! cmp -s /var/run/secrets/kubernetes.io/serviceaccount/token $OUT; do sleep 0.05; done"
    out = {"name": "OUT", "value": str(scene.workdir / "said")}
    script = container(f"{copy}; {watch}", volumeMounts=[INJECTED], env=[out])
    async with scene.node(has_accounts=True):
        await scene.pod("a", script, serviceAccountName="trainer", volumes=[VOLUME])
        await scene.appears("said")
    async with scene.node(has_accounts=True):
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded"


async def test_without_accounts_a_pod_runs_without_its_token(scene: Scene) -> None:
    script = container("test -z $KUBERNETES_SERVICE_HOST", volumeMounts=[INJECTED])
    async with scene.node():
        await scene.pod("a", script, serviceAccountName="trainer", volumes=[VOLUME])
        pod = await scene.ended("a")

    assert pod["status"]["phase"] == "Succeeded"


def test_an_api_server_without_tls_is_no_place_for_tokens() -> None:
    assert _access(Config(server="http://127.0.0.1:8080", source="test"), object()) is None  # type: ignore[arg-type]
