"""Which pods are started again after a fault: the restart policies, scopes, limits and back-off.

Restarts of a role are counted, and the count is the **attempt** of the pods that are created from then on: they carry
it as a label. A pod of an older attempt than its role (or, with scope Pod, its own place) has reached is deleted. So
nothing but the stored count says what is to be deleted, and a fault of such a pod is never looked at again: it is
counted once, however often the process dies.

When a replica dies, others die of it within moments. Such failures are one **incident**: it counts once in each role
that it hits, and no limit is charged for it twice. A pod that was started in an incident is not part of it. So what
fails again and again uses up its limit, however fast.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from trainmaster.core.wire import ExitCode, Number
from trainmaster.lifecycle.fault import SIGNALLED, SIGNALS, Fault, cause_of, end_of

RestartPolicy = Literal["Always", "OnFailure", "OnNodeFail", "Never", "ExitCode", "OnNodeFailWithExitCode"]
RestartScope = Literal["All", "Replica", "Pod"]

HISTORY = 10
"""Restarts that are listed in the status."""
LONGEST_BACKOFF = 300
"""Seconds."""
CALM = 600
"""Seconds without a fault that end a streak of restarts."""
TOGETHER = 10
"""For so many seconds after an incident began, failures are part of it, whatever they are; those of pods that have
lost a peer for ``CALM``. A restart may take minutes, and peers try to connect until then."""
_TICK = timedelta(microseconds=1)
"""Between two incidents at least, so that their times tell them apart."""
_AHEAD = timedelta(seconds=1)
"""The time of an incident that is further ahead is that of a clock that was wrong."""

_CODE = re.compile(r"(\d{1,3})(?:\s*-\s*(\d{1,3}))?")

_NUMBER = "([01]?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])"
EXIT_CODES = rf"^(\s*(({_NUMBER}(\s*-\s*{_NUMBER})?|[Ss][Ii][Gg][A-Za-z0-9]+)\s*)?(,|$))*$"
"""The pattern of exit codes for the API server; `exit_codes` also checks that signals exist, and that a range begins
with its lower end."""


class Rules(msgspec.Struct, frozen=True):
    """What the user wants for one role. ``backoff`` and ``reset`` are seconds."""

    policy: RestartPolicy
    scope: RestartScope
    limit: int | None
    backoff: int
    reset: int | None
    is_always_replaced: bool = False
    """Pods of the role are replaced whatever they failed of, because the role never ends the job."""


class Restarts(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is stored of the restarts of one role."""

    count: Number = 0
    """How often pods of the role were replaced. It only grows."""
    requested: Number = 0
    """How many of these a user asked for, by a suspension or with fewer replicas. They are no restarts."""
    used: Number = 0
    """The restarts that the role itself caused and that are charged to its limit."""
    streak: Number = 0
    """Restarts in a row, which the back-off depends on. Ten minutes without a fault end the row."""
    attempt: Number = 0
    """The present attempt of the role. Pods of a lower attempt are deleted."""
    attempts: dict[str, Number] = {}
    """The present attempt of single replicas, by index, where it is higher than that of the role."""
    next_time: datetime | None = None
    """The end of the back-off: before it no pod of the role is created."""
    incident_time: datetime | None = None
    """When the last incident began that hit the role. Pods that fail within ten seconds are one restart; those that
    lost a peer, within ten minutes."""
    charged: bool = False
    """The limit of the role is charged for this incident."""
    shared: Number = 0
    """How many of the restarts in ``used`` are charged to another role, too: they are one restart of the job."""

    def attempt_of(self, index: int) -> int:
        return max(self.attempt, self.attempts.get(str(index), 0))

    @property
    def restarts(self) -> int:
        return self.count - self.requested

    @property
    def used_of_job(self) -> int:
        """What of ``used`` counts when all roles are added up."""
        return self.used - self.shared

    def is_waiting(self, now: datetime) -> bool:
        return self.next_time is not None and is_pause((self.next_time - now).total_seconds())


def is_pause(seconds: float) -> bool:
    """True of a back-off that is not over. Its end was stored by the clock of one machine: if that clock was hours
    ahead, nothing waits for it."""
    return 0 < seconds <= LONGEST_BACKOFF


NONE = Restarts()

RestartsByRole = Mapping[str, Restarts]


def waits(restarts: RestartsByRole, now: datetime) -> dict[str, float]:
    """The roles whose pods are not created yet, with the seconds that they wait."""
    return {
        role: (of_role.next_time - now).total_seconds()
        for role, of_role in restarts.items()
        if of_role.next_time and of_role.is_waiting(now)
    }


class Restart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One restart, as the status remembers it."""

    time: datetime
    """When the restart was decided."""
    replica: str
    """The replica that failed: its role and index, or the name of its pod."""
    scope: str
    """What was restarted: All, Replica or Pod."""
    exit_code: ExitCode | None = None
    """The exit code of the container that failed."""
    signal: str = ""
    """The signal that ended the container, for example SIGKILL."""
    reason: str = ""
    """What happened to the container or to the pod, for example Error, OOMKilled or Evicted."""
    node: str = ""
    """The node of the pod."""
    line: str = ""
    """The last line of the output of the container, or of its termination message if the program wrote one."""

    def describe(self, when: str = "") -> str:
        """Which replica, how it ended, and ``when``: a second ago."""
        has_code, is_plain = self.exit_code is not None, self.reason in ("", "Error")
        signal = self.signal if is_plain else ""
        how = end_of(self.exit_code, signal) if has_code else self.reason or "failed"
        detail = f" ({', '.join(filter(None, (self.signal, self.reason)))})" if has_code and not is_plain else ""
        where = f" on node {self.node}" if self.node else ""
        return f"{self.replica} {how}{detail}{where}{when and f' {when}'}{cause_of(signal, self.line)}"


class FailedPod(msgspec.Struct, frozen=True):
    """A pod with a fault."""

    role: str
    index: int
    fault: Fault
    name: str = ""
    """What the restart history calls the replica, where that is not its role and index."""
    attempt: int = 0
    """For which the pod was created."""
    has_lost_peer: bool = False
    """By its own output it failed because another pod had failed."""


class Decision(msgspec.Struct, frozen=True):
    """A restart: the new counts, and its message. ``role`` is the one that caused it."""

    role: str
    restarts: dict[str, Restarts]
    history: tuple[Restart, ...]
    message: str
    is_charged: bool = False
    """The job is charged for it. It is not, if it was charged before for the same incident."""


# --- exit codes ---


def exit_codes(text: str) -> frozenset[int]:
    """The codes that a text like ``137, 128-143, SIGSEGV`` names. Raises ValueError for what names none."""
    found: set[int] = set()
    for part in filter(None, (word.strip() for word in text.split(","))):
        found.update(_codes(part))
    return frozenset(found)


def _codes(word: str) -> Iterable[int]:
    if number := SIGNALS.get(word.upper()):
        return (SIGNALLED + number,)
    match = _CODE.fullmatch(word)
    if match is None:
        raise ValueError(f"{word!r} is no exit code; write numbers (137), ranges (128-143) or signals (SIGKILL)")
    first, last = int(match[1]), int(match[2] or match[1])
    if last > 255:
        raise ValueError(f"{word!r}: an exit code is at most 255")
    if first > last:
        raise ValueError(f"{word!r} is an empty range; write {last}-{first}")
    return range(first, last + 1)


# --- whether ---


def is_wanted(policy: RestartPolicy, fault: Fault, codes: frozenset[int]) -> bool:
    """True when a pod with this fault is to be started again. Containers that ended well do not matter."""
    if fault.comes_again is not None:
        return fault.comes_again
    is_listed = bool(fault.exits) and codes.issuperset(fault.exits)
    match policy:
        case "Always":
            return True
        case "OnFailure":
            return fault.has_failed
        case "ExitCode":
            return is_listed
        case "OnNodeFail":
            return fault.is_node
        case "OnNodeFailWithExitCode":
            return fault.is_node or is_listed
        case "Never":
            return False


def admitted(
    wanted: Sequence[FailedPod],
    rules: Mapping[str, Rules],
    restarts: RestartsByRole,
    *,
    calm: timedelta,
    now: datetime,
    limit: int | None = None,
) -> tuple[FailedPod, ...]:
    """Those of the pods whose restart is within the limits of their roles, and within ``limit``, which is about all
    roles together. Roles by name, pods by index; those that no limit is about come last."""
    free = _free(wanted, restarts, now)
    is_job_spent = limit is not None and limit <= sum(r.used_of_job for r in restarts.values())
    found: list[FailedPod] = []
    for role, of_role in sorted(_grouped(f for f in wanted if (f.role, f.index) not in free).items()):
        charged, rule = _charged(_incident(of_role, restarts, now), restarts), rules[role]
        is_spent = rule.limit is not None and rule.limit <= _rested(restarts.get(role, NONE), rule, calm).used
        if (charged or not is_job_spent) and (role in charged or not is_spent):
            found += sorted(of_role, key=lambda f: f.index)
    return (*found, *(f for f in wanted if (f.role, f.index) in free))


def _rested(restarts: Restarts, rule: Rules, calm: timedelta) -> Restarts:
    """A calm time ends a streak; it gives the budget back only if the user says so."""
    if rule.reset is not None and calm >= timedelta(seconds=rule.reset):
        return msgspec.structs.replace(restarts, used=0, shared=0, streak=0)
    return msgspec.structs.replace(restarts, streak=0) if calm >= timedelta(seconds=CALM) else restarts


# --- incidents ---


def _incident(failed: Iterable[FailedPod], restarts: RestartsByRole, now: datetime) -> datetime:
    """When the incident began that these pods are part of: the last one, unless one of them is not part of it. By the
    clock of the operator: those of nodes differ."""
    known = [r.incident_time for r in restarts.values() if r.incident_time and r.incident_time <= now + _AHEAD]
    began = max(known, default=None)
    if began is None:
        return now
    return began if all(_is_part(f, began, restarts, now) for f in failed) else max(now, began + _TICK)


def _is_part(failed: FailedPod, began: datetime, restarts: RestartsByRole, now: datetime) -> bool:
    is_recent = now - began <= timedelta(seconds=CALM if failed.has_lost_peer else TOGETHER)
    of_role = restarts.get(failed.role, NONE)
    return is_recent and (of_role.incident_time != began or failed.attempt < of_role.count)


def _charged(incident: datetime, restarts: RestartsByRole) -> frozenset[str]:
    """The roles that are charged for an incident."""
    return frozenset(role for role, r in restarts.items() if r.charged and r.incident_time == incident)


def _free(failed: Sequence[FailedPod], restarts: RestartsByRole, now: datetime) -> frozenset[tuple[str, int]]:
    """The places of those that no limit is about: what Kubernetes or the kind says is free, and the failures of pods
    that lost a peer in that way."""
    has_free = any(f.fault.is_free for f in failed)
    return frozenset(
        (f.role, f.index)
        for f in failed
        if f.fault.is_free or (f.has_lost_peer and (has_free or _is_free_so_far(f, restarts, now)))
    )


def _is_free_so_far(failed: FailedPod, restarts: RestartsByRole, now: datetime) -> bool:
    incident = _incident([failed], restarts, now)
    return any(r.incident_time == incident for r in restarts.values()) and not _charged(incident, restarts)


# --- what then ---


def decide(
    failed: Sequence[FailedPod],
    rules: Mapping[str, Rules],
    restarts: RestartsByRole,
    history: tuple[Restart, ...],
    *,
    calm: timedelta,
    now: datetime,
) -> Decision:
    """The restart of these pods, which ``admitted`` returned. A restart of all pods covers all faults: it is charged to
    the first role with scope All, and to no other."""
    widest = next((f for f in failed if rules[f.role].scope == "All"), None)
    causes = [widest] if widest else _causes(failed, rules)
    free = _free(failed, restarts, now)
    new, is_charged = dict(restarts), False
    for role, of_role in _grouped(causes).items():
        incident = _incident(failed if widest else of_role, restarts, now)
        old = _rested(restarts.get(role, NONE), rules[role], calm)
        begun = _begun(old, of_role, rules[role], incident, now)
        if not begun.charged and any((f.role, f.index) not in free for f in of_role):
            is_shared = bool(_charged(incident, new))
            is_charged |= not is_shared
            begun = msgspec.structs.replace(begun, used=old.used + 1, shared=old.shared + is_shared, charged=True)
        new[role] = begun
    if widest:
        whole = new[widest.role]
        for role in rules.keys() - {widest.role}:
            old = new.get(role, NONE)
            new[role] = msgspec.structs.replace(
                _attempt(old, old.count + 1),
                next_time=whole.next_time,
                incident_time=whole.incident_time,
                charged=old.charged and old.incident_time == whole.incident_time,
            )
    entries = [_history_entry(f, rules[f.role].scope, now) for f in causes]
    first = causes[0]
    return Decision(
        role=first.role,
        restarts={role: new[role] for role in sorted(new)},
        history=(*history, *entries)[-HISTORY:],
        message=f"restart times is {new[first.role].restarts}, {_joined_messages(causes)}",
        is_charged=is_charged,
    )


def replaced(
    restarts: RestartsByRole, places: Iterable[tuple[str, int]], rules: Mapping[str, Rules], now: datetime
) -> dict[str, Restarts]:
    """A new attempt of single places, that no role is charged for: their pods are deleted through no fault of their
    own. The places of a role that this happens to again and again wait as after a fault."""
    found = dict(restarts)
    for role, indices in _by_role(places).items():
        old, backoff = found.get(role, NONE), rules[role].backoff
        found[role] = msgspec.structs.replace(
            _attempt_of_places(old, indices),
            streak=old.streak + bool(backoff),
            next_time=_next_time(old.streak, backoff, now) or old.next_time,
        )
    return found


def after_removal(restarts: RestartsByRole, places: Iterable[tuple[str, int]]) -> dict[str, Restarts]:
    """A new attempt of single places that are no longer in the spec."""
    found = dict(restarts)
    for role, indices in _by_role(places).items():
        old = found.get(role, NONE)
        found[role] = msgspec.structs.replace(_attempt_of_places(old, indices), requested=old.requested + 1)
    return found


def uncharged(
    failed: Sequence[FailedPod],
    rules: Mapping[str, Rules],
    restarts: RestartsByRole,
    history: tuple[Restart, ...],
    *,
    calm: timedelta,
    now: datetime,
) -> Decision:
    """The restart of pods that the job goes on without meanwhile: each comes again alone, after the back-off of its
    role, and nothing of the restart limit is used."""
    alone = {role: msgspec.structs.replace(rule, scope="Pod") for role, rule in rules.items()}
    free = [msgspec.structs.replace(f, fault=msgspec.structs.replace(f.fault, is_free=True)) for f in failed]
    return decide(free, alone, restarts, history, calm=calm, now=now)


def after_suspension(restarts: RestartsByRole, roles: Iterable[str]) -> dict[str, Restarts]:
    """A new attempt of all pods, that no role is charged for and that is no restart."""
    found = dict(restarts)
    for role in roles:
        old = found.get(role, NONE)
        found[role] = msgspec.structs.replace(_attempt(old, old.count + 1), requested=old.requested + 1)
    return found


def _grouped(failed: Iterable[FailedPod]) -> dict[str, list[FailedPod]]:
    found: dict[str, list[FailedPod]] = {}
    for f in failed:
        found.setdefault(f.role, []).append(f)
    return found


def _by_role(places: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for role, index in places:
        found.setdefault(role, []).append(index)
    return found


def _causes(failed: Sequence[FailedPod], rules: Mapping[str, Rules]) -> list[FailedPod]:
    """One for each restart: of a role that restarts as a whole, the first."""
    seen: set[str] = set()
    found = []
    for f in failed:
        if rules[f.role].scope == "Pod" or f.role not in seen:
            found.append(f)
        seen.add(f.role)
    return found


def _begun(old: Restarts, causes: Sequence[FailedPod], rule: Rules, incident: datetime, now: datetime) -> Restarts:
    """The restarts of a role that an incident has hit, maybe once more: then nothing is counted, and nothing waits for
    longer."""
    if rule.scope == "Pod" and old.incident_time == incident:
        return msgspec.structs.replace(old, attempts=old.attempts | {str(f.index): old.count for f in causes})
    count = old.count + 1
    places = old.attempts | {str(f.index): count for f in causes}
    new = msgspec.structs.replace(old, count=count, attempts=places) if rule.scope == "Pod" else _attempt(old, count)
    is_evicted = all(f.fault.is_eviction for f in causes)  # nothing to wait for: it will not happen again by itself
    return msgspec.structs.replace(
        new,
        streak=old.streak + (not is_evicted),
        next_time=old.next_time if is_evicted else _next_time(old.streak, rule.backoff, now),
        incident_time=incident,
        charged=old.charged and old.incident_time == incident,
    )


def _attempt(old: Restarts, count: int) -> Restarts:
    return msgspec.structs.replace(old, count=count, attempt=count, attempts={})


def _attempt_of_places(old: Restarts, indices: Iterable[int]) -> Restarts:
    count = old.count + 1
    return msgspec.structs.replace(old, count=count, attempts=old.attempts | dict.fromkeys(map(str, indices), count))


def _next_time(streak: int, backoff: int, now: datetime) -> datetime | None:
    """The first restart comes at once; those that follow it without calm wait twice as long each time."""
    if not streak or not backoff:
        return None
    return now + timedelta(seconds=min(backoff * 2 ** min(streak - 1, 16), LONGEST_BACKOFF))


def _history_entry(failed: FailedPod, scope: RestartScope, now: datetime) -> Restart:
    fault = failed.fault
    return Restart(
        time=now,
        replica=failed.name or f"{failed.role.lower()}-{failed.index}",
        scope=scope,
        exit_code=fault.exit_code,
        signal=fault.signal,
        reason=fault.reason,
        node=fault.node,
        line=fault.line,
    )


def _joined_messages(causes: Sequence[FailedPod], limit: int = 3) -> str:
    rest = len(causes) - limit
    return "; ".join(f.fault.message for f in causes[:limit]) + (f"; and {rest} more" if rest > 0 else "")
