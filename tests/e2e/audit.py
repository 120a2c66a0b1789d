"""What service accounts may do by RBAC, and what they did by the audit log of the API server."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.build import Json

RBAC = ("Role", "ClusterRole")


class Right(NamedTuple):
    """One verb. Without a namespace it is for all of them, without a name for all objects."""

    account: str
    verb: str
    group: str
    resource: str
    """With a subresource: ``dijobs/status``."""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {what}{f' {self.name}' if self.name else ''}{place}"

    def allows(self, use: "Right") -> bool:
        """Is a request one for which this right is enough?"""
        return self[:4] == use[:4] and self.name in ("", use.name) and self.namespace in ("", use.namespace)


def granted(bodies: Iterable[Json]) -> set[Right]:
    """The rights of the service accounts of an installation, one for each verb, resource and name."""
    bodies = list(bodies)
    roles = {_key(body): body["rules"] for body in bodies if body["kind"] in RBAC}
    return {
        right
        for body in bodies
        if body["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in body["subjects"]
        for right in _rights_of(
            f"{subject['namespace']}/{subject['name']}",
            roles[body["roleRef"]["kind"], body["roleRef"]["name"], body["metadata"].get("namespace", "")],
            body["metadata"].get("namespace", ""),
        )
    }


def _key(body: Json) -> tuple[str, str, str]:
    return body["kind"], body["metadata"]["name"], body["metadata"].get("namespace", "")


def _rights_of(account: str, rules: Iterable[Json], namespace: str) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(account, verb, group, resource, name, namespace)


class Audit:
    """The log from its beginning; each look reads what was added."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self._uses: dict[tuple[str, ...], set[Right]] = {}
        self._forbidden: set[Right] = set()

    def look(self) -> None:
        """Read on."""
        with self._file.open("rb") as log:
            assert log.seek(0, 2) >= self._read, f"{self._file} was rotated: what was used before is not known"
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._take(json.loads(line))

    def _take(self, event: Json) -> None:
        prefix, _, account = event["user"]["username"].partition("system:serviceaccount:")
        if prefix or not account:
            return
        target = event.get("objectRef", {})
        subresource = f"/{target['subresource']}" if "subresource" in target else ""
        use = Right(
            account.replace(":", "/"),
            event["verb"],
            target.get("apiGroup", ""),
            target.get("resource", event["requestURI"]) + subresource,
            target.get("name", ""),
            target.get("namespace", ""),
        )
        self._uses.setdefault(use[:4], set()).add(use)
        # A namespace that is being deleted answers 403, too.
        if event.get("annotations", {}).get("authorization.k8s.io/decision") != "allow":
            self._forbidden.add(use)

    def forgive(self) -> None:
        """Forget what was forbidden, after a time without rights: those of an installation that is removed go before
        its pods."""
        self.look()
        self._forbidden.clear()

    def unused(self, rights: Iterable[Right]) -> list[Right]:
        """Those that no request needed."""
        return sorted(right for right in rights if not any(map(right.allows, self._uses.get(right[:4], ()))))

    def beyond(self, rights: Iterable[Right]) -> list[Right]:
        """Requests of the accounts of these rights that were forbidden, or are allowed to everybody."""
        rights = list(rights)
        accounts = {right.account for right in rights}
        kinds = {right[:4] for right in rights}
        extra = {Right(*kind) for kind in self._uses if kind[0] in accounts and kind not in kinds}
        return sorted(extra | {use for use in self._forbidden if use.account in accounts})
