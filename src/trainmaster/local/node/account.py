"""Service accounts: the address of the API server for programs in pods, and their tokens."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import msgspec

from trainmaster.core.errors import Trainmaster
from trainmaster.core.ids import Key
from trainmaster.local.node.environment import BadReference, Token
from trainmaster.local.node.pod import Object, Pod, seconds_of

INJECTED = "kube-api-access-"
"""The prefix of the token volume that admission adds to every pod that does not opt out."""
RENEW_AT = 0.8
"""Part of a token's lifetime after which it is replaced, as in a kubelet."""


class Access(NamedTuple):
    """The API server's address for programs. ``request`` sends a TokenRequest for a service account and returns it with
    the token."""

    host: str
    port: int
    request: Callable[[Key, bytes], Awaitable[bytes]]

    @property
    def environment(self) -> dict[str, str]:
        return {"KUBERNETES_SERVICE_HOST": self.host, "KUBERNETES_SERVICE_PORT": str(self.port)}


def without_account(pod: Pod) -> Pod:
    """The pod without the injected token volume, for a cluster that issues no tokens."""
    if not any(name.startswith(INJECTED) for name in pod.volumes):
        return pod
    volumes = [volume for name, volume in pod.volumes.items() if not name.startswith(INJECTED)]
    spec = {**pod.spec, "volumes": volumes, "containers": [*map(_without_mount, pod.containers)]}
    if pod.init_containers:
        spec["initContainers"] = [*map(_without_mount, pod.init_containers)]
    return Pod({**pod.body, "spec": spec})


def _without_mount(container: Object) -> Object:
    mounts = [each for each in container.get("volumeMounts") or () if not each["name"].startswith(INJECTED)]
    return {**container, "volumeMounts": mounts}


class _Issued(NamedTuple):
    content: bytes
    renew_at: float


class _Status(msgspec.Struct):
    token: str
    expiration: str = msgspec.field(name="expirationTimestamp")


class _Answer(msgspec.Struct):
    status: _Status


class Tokens:
    """The tokens of one pod. They are bound to the pod and become invalid with it."""

    def __init__(self, access: Access | None) -> None:
        self._access = access
        self._issued: dict[Token, _Issued] = {}
        self._one_at_a_time = asyncio.Lock()

    async def get(self, pod: Pod, wanted: Iterable[Token]) -> dict[Token, bytes]:
        """The current tokens; a token that expires soon is replaced."""
        async with self._one_at_a_time:
            return {token: await self._fresh(pod, token) for token in wanted}

    async def _fresh(self, pod: Pod, token: Token) -> bytes:
        issued = self._issued.get(token)
        if issued is None or time.time() >= issued.renew_at:
            issued = self._issued[token] = await self._issue(pod, token)
        return issued.content

    async def _issue(self, pod: Pod, token: Token) -> _Issued:
        assert self._access is not None  # noqa: S101  without it, a pod that mounts a token is rejected
        account = pod.spec.get("serviceAccountName") or "default"
        try:
            raw = await self._access.request(Key(pod.key.namespace, account), _request(pod, token))
        except Trainmaster as error:
            raise BadReference(f"MountVolume.SetUp failed: failed to fetch token of {account}: {error}") from error
        status = msgspec.json.decode(raw, type=_Answer).status
        now = time.time()
        return _Issued(status.token.encode(), now + RENEW_AT * (seconds_of(status.expiration) - now))


def _request(pod: Pod, token: Token) -> bytes:
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.key.name, "uid": pod.uid}
    audiences = {"audiences": [token.audience]} if token.audience else {}
    spec = {**audiences, "expirationSeconds": token.seconds, "boundObjectRef": bound}
    return msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
