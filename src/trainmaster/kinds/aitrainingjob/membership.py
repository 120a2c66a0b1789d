"""The current members of an elastic AITrainingJob: a file in a ConfigMap, which its pods mount.

The environment of a process never changes; this file does. It holds the pods that run, each with the address and the
ports that it has. Pending and terminating pods are not in it. Every change increments the generation, which is
stored in the status before the file is written: even if the file is lost, a generation always means the same members.
"""

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b

import msgspec

from trainmaster.core.ids import CONFIG_MAP
from trainmaster.core.plan import Body, Create, Patch
from trainmaster.core.slot import Slot
from trainmaster.core.template import MANAGED_BY
from trainmaster.kinds.aitrainingjob import labels
from trainmaster.kinds.aitrainingjob.body import MEMBERS, Builder, membership_name
from trainmaster.kinds.aitrainingjob.types import AITrainingJob, MembershipRecord
from trainmaster.lifecycle.decide import Extra
from trainmaster.lifecycle.facts import Facts, attempt_of

PAUSE = 1.0
"""Seconds between two changes: of hundreds of pods that start at once, many join with one of them."""


class Member(msgspec.Struct, frozen=True):
    name: str
    role: str
    index: int
    address: str
    ports: tuple[int, ...]
    attempt: int


class Membership(msgspec.Struct, frozen=True):
    generation: int = 0
    members: tuple[Member, ...] = ()


def next_step(job: AITrainingJob, facts: Facts, builder: Builder, now: datetime) -> Extra:
    """What brings the file up to date."""
    observed, members, old = facts.observed, _members(facts, builder), job.status.membership
    digest = _digest(members)
    if old.digest != digest:
        if old.time and 0 <= (old.time - now).total_seconds() < PAUSE:  # a clock that was ahead delays nothing
            return Extra(record=old, retry_after=PAUSE)
        record = MembershipRecord(generation=old.generation + 1, digest=digest, time=now)
        return Extra(record=record, is_new=True)
    wanted = Membership(old.generation, members)
    child = observed.child(CONFIG_MAP, membership_name(job))
    if child is None:
        return Extra(record=old, creates=(_creation(job, wanted, builder),))
    data = _data(wanted)
    if child.deleting or child.has_data(data):
        return Extra(record=old)
    why = f"the members changed: {len(members)} pods take part now"
    change = Patch(CONFIG_MAP, child.key, child.uid, child.resource_version, {"data": data}, why)
    return Extra(record=old, patches=(change,))


def _members(facts: Facts, builder: Builder) -> tuple[Member, ...]:
    """The pods that run and stay, roles by name."""
    found: list[Member] = []
    for (role, index), pod in facts.pods.items():
        if not pod.deleting and pod.phase == "Running":
            slot = Slot(role, index, pod.key.name)
            attempt = attempt_of(pod, labels.RESTART_COUNT)
            ports = builder.ports(slot)
            found.append(Member(slot.name, role.lower(), index, builder.address(slot), ports, attempt))
    return tuple(found)


def _digest(members: Sequence[Member]) -> str:
    return blake2b(msgspec.json.encode(members), digest_size=8).hexdigest() if members else ""


def _creation(job: AITrainingJob, membership: Membership, builder: Builder) -> Create:
    body: Body = {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": membership_name(job),
            "namespace": job.metadata.namespace,
            "labels": {
                labels.GROUP_NAME: labels.GROUP,
                labels.TRAINING_JOB_NAME: job.metadata.name,
                **MANAGED_BY,
            },
            "ownerReferences": [builder.owner],
        },
        "data": _data(membership),
    }
    return Create(CONFIG_MAP, body, "an elastic job tells its pods who takes part")


def _data(membership: Membership) -> dict[str, str]:
    return {MEMBERS: msgspec.json.encode(membership).decode()}
