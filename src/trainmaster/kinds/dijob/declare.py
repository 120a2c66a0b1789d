"""What becomes of a declaration when a coordinator asks for more, for fewer, or for others in place of the failed.

Pure: random suffixes and the time are arguments. di-server applies these functions to what a client asks for, the
operator applies ``Edit.replace`` to members that failed; both store the result under the version that they read.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count, islice

import msgspec

from trainmaster.core.quantity import amount_of, rounded_up
from trainmaster.kinds.dijob.declaration import Declared, LastRequest, Member, Members, Role

COLLECTOR: Role = "collector"
LEARNER: Role = "learner"
AGGREGATOR: Role = "aggregator"
DDP_LEARNER: Role = "ddp-learner"

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Of Kubernetes' own random suffixes: nothing that reads as a word, or as another character."""
SUFFIX_LENGTH = 5

RETRY_WINDOW = timedelta(seconds=30)
"""How long an unanswered request is remembered. DI-engine's client gives up after five tries, one second apart."""
CALM = timedelta(minutes=10)
"""A replica that lived so long begins to count its failures anew."""
LONGEST_PAUSE = 60.0

Suffixes = Iterator[str]


class Asked(msgspec.Struct, frozen=True):
    """So many replicas of a role. ``shares`` are the GPUs of each pod of a learner that needs several pods."""

    replicas: int
    cpus: str = ""
    gpus: int = 0
    memory: str = ""
    shares: tuple[int, ...] = ()

    @property
    def is_group(self) -> bool:
        return bool(self.shares)


class Change(msgspec.Struct, frozen=True):
    """A declaration after a request, and the names that the answer is about."""

    declared: Declared
    collectors: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.collectors, *self.learners)


# --- what a client asks for --------------------------------------------------------------------


def requested(
    declared: Declared,
    asked: Mapping[Role, Asked],
    *,
    job: str,
    incarnation: str,
    suffixes: Suffixes,
    now: datetime,
) -> Change:
    """The first request of an incarnation of the coordinator about a role states how many it has; further ones add.

    Requests with an empty incarnation do not come from the coordinator, and only add.
    """
    edit, found = Edit(declared), dict[Role, tuple[str, ...]]()
    for role, wanted in asked.items():
        kept: tuple[str, ...] = ()
        if incarnation and declared.incarnations.get(role) != incarnation:
            kept = _fitting(edit.members, role, wanted)
            for name in set(counted(edit.members, role)).difference(kept):
                edit.drop(name)
        new = [edit.add(role, wanted, job, suffixes, now) for _ in range(wanted.replicas - len(kept))]
        found[role] = (*kept, *new)
    stated = declared.incarnations | (dict.fromkeys(asked, incarnation) if incarnation else {})
    changed = msgspec.structs.replace(edit.result, incarnations=stated)
    return Change(changed, found.get(COLLECTOR, ()), found.get(LEARNER, ()))


def removed(declared: Declared, counts: Mapping[Role, int], states: Mapping[str, str]) -> Change:
    """Removes this many replicas of a role: those that failed first, then those that do not run yet, then the newest.

    ``states`` are those of the pods, by name. A larger number than there are removes all.
    """
    edit, found = Edit(declared), dict[Role, tuple[str, ...]]()
    for role, number in counts.items():
        ranked = sorted(counted(edit.members, role), key=lambda name: _rank(edit, name, states))
        found[role] = tuple(ranked[: max(number, 0)])
        for name in found[role]:
            edit.drop(name)
    return Change(edit.result, found.get(COLLECTOR, ()), found.get(LEARNER, ()))


def failed(declared: Declared, names: Iterable[str], *, suffixes: Suffixes, now: datetime) -> Change:
    """Replaces these replicas; a DDP group is replaced as a whole. Unknown names are ignored."""
    heads = dict.fromkeys(head_of(declared.members, name) for name in names if name in declared.members)
    edit = Edit(declared)
    collectors: list[str] = []
    learners: list[str] = []
    for head in heads:
        of_role = collectors if declared.members[head].role == COLLECTOR else learners
        of_role.append(edit.replace(head, suffixes=suffixes, now=now, is_own_fault=True))
    return Change(edit.result, tuple(collectors), tuple(learners))


class Edit:
    """A declaration while its members change. Each step costs as much as the replica or the DDP group that it changes:
    a request may name every replica of a job."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self.members: Members = dict(declared.members)
        self._taken = set(self.members)
        self._groups: dict[str, list[str]] = {}
        for name, member in self.members.items():
            if member.aggregator:
                self._groups.setdefault(member.aggregator, []).append(name)

    @property
    def result(self) -> Declared:
        return msgspec.structs.replace(self._declared, members=self.members)

    def group_of(self, head: str) -> tuple[str, ...]:
        """A replica and the DDP learners behind it."""
        return head, *self._groups.get(head, ())

    def add(self, role: Role, asked: Asked, job: str, suffixes: Suffixes, now: datetime) -> str:
        if not asked.is_group:
            name = fresh_name(f"{job}-{role}", self._taken, suffixes)
            self.members[name] = Member(role, now, asked.cpus, asked.gpus, asked.memory)
            return name
        head = fresh_name(f"{job}-{AGGREGATOR}", self._taken, suffixes)
        self.members[head] = Member(AGGREGATOR, now, asked.cpus, memory=asked.memory, world_size=asked.gpus)
        pods = [fresh_name(f"{job}-{DDP_LEARNER}", self._taken, suffixes) for _ in asked.shares]
        self._groups[head] = pods
        start = 0
        for name, share in zip(pods, asked.shares, strict=True):
            cpus, memory = _part_of(asked, share)
            self.members[name] = Member(
                DDP_LEARNER,
                now,
                cpus,
                share,
                memory,
                aggregator=head,
                world_size=asked.gpus,
                start_rank=start,
                master=pods[0] if start else "",
            )
            start += share
        return head

    def drop(self, head: str) -> None:
        for name in self.group_of(head):
            del self.members[name]
        self._groups.pop(head, None)

    def replace(self, name: str, *, suffixes: Suffixes, now: datetime, is_own_fault: bool) -> str:
        """Replaces a replica under a new name, to distinguish its pod from the old one; returns the name of its head.

        A DDP group is replaced as a whole: its processes have one communicator, which does not survive the loss of a
        rank, and the aggregator's client does not survive the loss of a learner.
        """
        head = head_of(self.members, name)
        old = {each: self.members[each] for each in self.group_of(head)}
        names = {each: fresh_name(each.rpartition("-")[0], self._taken, suffixes) for each in old}
        self.drop(head)
        for each, member in old.items():
            self.members[names[each]] = msgspec.structs.replace(
                member,
                at=now,
                attempt=_next_attempt(member, now, is_own_fault=is_own_fault),
                aggregator=names.get(member.aggregator, ""),
                master=names.get(member.master, ""),
                formed=False,
                restarts=0,
            )
        if len(names) > 1:
            self._groups[names[head]] = [names[each] for each in old if each != head]
        return names[head]


def recognised(last: LastRequest | None, digest: str, incarnation: str, now: datetime) -> LastRequest | None:
    """The last request, when this is the same one again because its answer got lost."""
    if last is None or last.answered or (last.digest, last.incarnation) != (digest, incarnation):
        return None
    return last if abs(now - last.at) <= RETRY_WINDOW else None


# --- questions ---------------------------------------------------------------------------------


def counted(members: Mapping[str, Member], role: Role) -> tuple[str, ...]:
    """The replicas that a coordinator counts: an aggregator stands for the learner that it gathers."""
    roles = (LEARNER, AGGREGATOR) if role == LEARNER else (role,)
    return tuple(sorted((n for n, m in members.items() if m.role in roles), key=lambda n: (members[n].role != role, n)))


def group_of(members: Mapping[str, Member], aggregator: str) -> tuple[str, ...]:
    """The DDP learners behind an aggregator, in the order of their ranks."""
    found = [name for name, member in members.items() if member.aggregator == aggregator]
    return tuple(sorted(found, key=lambda name: (members[name].start_rank, name)))


def head_of(members: Mapping[str, Member], name: str) -> str:
    """The replica that stands for this one: the aggregator of a DDP learner, else itself."""
    return members[name].aggregator or name


def pause(times: int) -> float:
    """Seconds between a failure and the pod that comes in place of the failed one: one, doubling with every failure."""
    return min(LONGEST_PAUSE, 2.0 ** (min(times, 32) - 1)) if times else 0.0


def split(gpus: int, per_node: int) -> tuple[int, ...]:
    """GPUs of each pod when no node has more than so many; one pod when nothing is known of nodes."""
    if per_node <= 0 or gpus <= per_node:
        return (gpus,)
    rest = gpus % per_node
    return (per_node,) * (gpus // per_node) + ((rest,) if rest else ())


def usual_gpus(allocatable: Iterable[int]) -> int:
    """What most of the nodes that have GPUs have; of equally frequent numbers the larger, 0 when no node has any."""
    numbers = [number for number in allocatable if number > 0]
    return max(numbers, key=lambda number: (numbers.count(number), number), default=0)


# --- names -------------------------------------------------------------------------------------


def fresh_name(prefix: str, taken: set[str], suffixes: Suffixes) -> str:
    """An unused name, which is added to ``taken``."""
    name = next(candidate for suffix in suffixes if (candidate := f"{prefix}-{suffix}") not in taken)
    taken.add(name)
    return name


def derived_suffixes(*seed: str) -> Suffixes:
    """Deterministic suffixes for pure code: the same for the same seed, different for another."""
    for number in count():
        digest = sha256("/".join((*seed, str(number))).encode()).digest()
        yield "".join(ALPHABET[byte % len(ALPHABET)] for byte in islice(digest, SUFFIX_LENGTH))


# --- inside ------------------------------------------------------------------------------------


def _part_of(asked: Asked, gpus: int) -> tuple[str, str]:
    """CPUs and memory of a pod with so many of a learner's GPUs: like those, what was asked for is for all its pods."""
    if gpus == asked.gpus:
        return asked.cpus, asked.memory
    cpus, memory = (amount_of(text or "0") * gpus / asked.gpus for text in (asked.cpus, asked.memory))
    return f"{rounded_up(cpus * 1000)}m" if cpus else "", str(rounded_up(memory)) if memory else ""


def _fitting(members: Mapping[str, Member], role: Role, asked: Asked) -> tuple[str, ...]:
    """Replicas of an earlier incarnation that are what is asked for, the oldest first, as many as are asked for."""
    fitting = [name for name in counted(members, role) if _fits(members[name], asked)]
    fitting.sort(key=lambda name: (members[name].at, name))
    return tuple(fitting[: asked.replicas])


def _fits(member: Member, asked: Asked) -> bool:
    if (member.role == AGGREGATOR) != asked.is_group or (member.world_size or member.gpus) != asked.gpus:
        return False
    given, wanted = (member.cpus, member.memory), (asked.cpus, asked.memory)
    return all(_amount(a) == _amount(b) for a, b in zip(given, wanted, strict=True))


def _amount(text: str) -> object:
    return amount_of(text) if text else None


def _rank(edit: Edit, name: str, states: Mapping[str, str]) -> tuple[int, float, str]:
    worst = min(_order(states.get(each, "")) for each in edit.group_of(name))
    return worst, -edit.members[name].at.timestamp(), name


def _order(state: str) -> int:
    """Failed replicas are removed first, then ended or pending ones, then running ones."""
    return {"Failed": 0, "Running": 2}.get(state, 1)


def _next_attempt(member: Member, now: datetime, *, is_own_fault: bool) -> int:
    """Faults that the cluster caused do not raise the attempt; it is at least 1, so that there is a back-off."""
    if not is_own_fault:
        return max(member.attempt, 1)
    return 1 if now - member.at >= CALM else member.attempt + 1
