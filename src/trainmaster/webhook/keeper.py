"""Keeps the webhook trusted: the Secret with authority and certificate, what is served of it, and the caBundle by
which the API server knows us.

Every replica does all of it, every few seconds, without a leader. The Secret is part of the manifest and empty there;
it is updated only with its last resourceVersion. A pass reads the configurations before the Secret. So a replica that
writes a caBundle from an older Secret than another replica gets a Conflict on the configuration.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import structlog
from cryptography import x509

from trainmaster.core.errors import BadConfig, Conflict, NotFound, Trainmaster
from trainmaster.core.ids import Key, Resource
from trainmaster.runtime.cluster import Cluster
from trainmaster.webhook import bundle, certificate
from trainmaster.webhook.certificate import Hosts, Material
from trainmaster.webhook.served import Served

log = structlog.get_logger(__name__)

SECRET = Resource("", "v1", "secrets", "Secret")
MUTATING = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
VALIDATING = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)

_TRIES = 4
"""Passes of one look, when others write at the same time."""


class Times(msgspec.Struct, frozen=True):
    """Seconds, measured by a clock that never jumps."""

    look: float = 10.0
    """Between two passes."""
    settle: float = 15.0
    """Until every API server has surely heard of a changed caBundle."""
    linger: float = 600.0
    """Until every replica that is ready has surely loaded what the Secret holds: one that has not seen it for half
    as long is not ready."""


_TIMES = Times()


class Place(msgspec.Struct, frozen=True):
    """The Secret, its host names and the webhook configurations."""

    secret: Key
    hosts: Hosts
    mutating: str
    validating: str

    @property
    def configurations(self) -> tuple[tuple[Resource, Key], ...]:
        return (MUTATING, Key("", self.mutating)), (VALIDATING, Key("", self.validating))


class _MetaWire(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _ConfigurationWire(msgspec.Struct, frozen=True):
    metadata: _MetaWire
    webhooks: bundle.Webhooks | None = None


_decode_configuration = msgspec.json.Decoder(_ConfigurationWire).decode


class _Configuration(NamedTuple):
    resource: Resource
    key: Key
    version: str
    webhooks: bundle.Webhooks


class _Since:
    """For how long something has been as it is now."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: tuple[object, float] | None = None

    def elapsed(self, what: object) -> float:
        now = self._monotonic()
        if self._seen is None or self._seen[0] != what:
            self._seen = (what, now)
        return now - self._seen[1]


class Keeper:
    def __init__(
        self,
        cluster: Cluster,
        place: Place,
        served: Served,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        times: Times = _TIMES,
    ) -> None:
        self._cluster = cluster
        self._place = place
        self._served = served
        self._now = now
        self._monotonic = monotonic
        self._times = times
        self._material: Material | None = None
        self._loaded: x509.Certificate | None = None
        self._trusted = _Since(monotonic)
        self._spread = _Since(monotonic)
        self._looked = float("-inf")
        self._trouble = "nothing was looked at yet"
        self._error = ""
        """Why the last check ended early."""

    @property
    def trouble(self) -> str:
        """Why the API server would not trust us now; empty when it does."""
        if self._monotonic() - self._looked > self._times.linger / 2:
            return self._trouble or f"the certificate may be an old one: {self._error}"
        return self._trouble or self._served.trouble(self._now())

    async def run(self, stop: asyncio.Event) -> None:
        """Check every few seconds until ``stop`` is set."""
        while not stop.is_set():
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._times.look)

    async def look(self) -> None:
        """One check; errors are logged, and the next check retries."""
        try:
            trouble = await self._settled()
            self._looked = self._monotonic()
        except (Trainmaster, msgspec.MsgspecError) as error:
            self._error = str(error)
            log.warning("certificate not looked after", because=self._error)
            # A certificate that was trusted still is: an API server that is down for a while changes nothing.
            trouble = self._trouble and self._error
        if trouble and trouble != self._trouble:
            log.warning("not ready", because=trouble)
        self._trouble = trouble

    async def _settled(self) -> str:
        """Passes until none was crossed by another replica's."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(Conflict):
                return await self._pass()
        return await self._pass()

    async def _pass(self) -> str:
        places = self._place.configurations
        found = [await self._configuration(resource, key) for resource, key in places]
        configurations = [each for each in found if each is not None]
        material = await self._kept(configurations)
        for each in configurations:
            await self._make_trusted(each, material)
        self._load(material)
        missing = [f"{places[i][0].kind} {places[i][1].name}" for i, each in enumerate(found) if each is None]
        return f"there is no {' and no '.join(missing)}; apply deploy/webhook.yaml" if missing else ""

    # --- the Secret ---

    async def _kept(self, configurations: Sequence[_Configuration]) -> Material:
        """The content of the Secret after its next step, by this or another replica."""
        body = await self._secret()
        stored = self._read(body)
        material = self._next(stored or self._anew(), configurations)
        if material is not stored:
            await self._replace(body, material, is_first=stored is None)
        self._material = material
        return material

    def _next(self, old: Material, configurations: Sequence[_Configuration]) -> Material:
        signer = old.authority.certificate
        is_known = all(signer in bundle.trusted_by(each.webhooks) for each in configurations)
        known_for = self._trusted.elapsed((signer, is_known))
        spread_for = self._spread.elapsed(old.serving.certificate)
        return certificate.advanced(
            old,
            self._place.hosts,
            self._now(),
            is_trusted=is_known and known_for >= self._times.settle,
            is_spread=spread_for >= self._times.linger,
        )

    async def _secret(self) -> dict[str, Any]:
        key = self._place.secret
        try:
            return msgspec.json.decode(await self._cluster.get(SECRET, key), type=dict[str, Any])
        except NotFound as error:
            # The webhook may not create Secrets: with that right it could get the token of every service account.
            how = f"kubectl create secret generic {key.name} --namespace {key.namespace}"
            raise NotFound(f"there is no Secret {key} for the certificates; create it empty: {how}") from error

    def _read(self, body: dict[str, Any]) -> Material | None:
        """What the Secret has; None when it is empty or cannot be used."""
        data = body.get("data")
        if not data:
            return None
        try:
            return certificate.material_in(data)
        except BadConfig as bad:
            log.warning("secret cannot be used and is written anew", secret=str(self._place.secret), because=str(bad))
            return None

    def _anew(self) -> Material:
        """New material. Known former authorities stay trusted, for replicas that still serve old certificates."""
        if self._material is None:
            return certificate.first_material(self._place.hosts, self._now())
        return certificate.with_new_authority(self._material, self._now())

    async def _replace(self, body: dict[str, Any], new: Material, *, is_first: bool) -> None:
        """The version in the body is a precondition; what others wrote beside our data stays."""
        changed = {**body, "data": {**(body.get("data") or {}), **certificate.data_of(new)}}
        await self._cluster.replace(SECRET, self._place.secret, msgspec.json.encode(changed))
        log.info(
            "certificate authority made" if is_first else "certificates changed",
            secret=str(self._place.secret),
            until=new.serving.certificate.not_valid_after_utc.isoformat(),
            authorities=len(new.trusted),
        )

    # --- webhook configurations, and the served certificate ---

    async def _configuration(self, resource: Resource, key: Key) -> _Configuration | None:
        try:
            wire = _decode_configuration(await self._cluster.get(resource, key))
        except NotFound:
            return None
        return _Configuration(resource, key, wire.metadata.resource_version, wire.webhooks or [])

    async def _make_trusted(self, configuration: _Configuration, material: Material) -> None:
        webhooks = bundle.with_bundle(configuration.webhooks, material.trusted)
        if webhooks is None:
            return
        patch = {"metadata": {"resourceVersion": configuration.version}, "webhooks": webhooks}
        await self._cluster.patch(configuration.resource, configuration.key, msgspec.json.encode(patch))
        log.info("caBundle written", configuration=configuration.key.name, authorities=len(material.trusted))

    def _load(self, material: Material) -> None:
        """Serves the certificate; called after the caBundles were written."""
        serving = material.serving
        if serving.certificate != self._loaded:
            self._served.load(certificate.pem_of([serving.certificate]), serving.secret)
            self._loaded = serving.certificate
            log.info("certificate loaded", until=serving.certificate.not_valid_after_utc.isoformat())
