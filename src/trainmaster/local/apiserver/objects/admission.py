"""Admission: functions that are called before a custom object is stored.

Local mode knows no kinds, so it gets the functions; ``wiring/local_admission.py`` has those of our webhook. They
are called where kube-apiserver calls webhooks: ``mutate`` before the schema is checked, ``validate`` after it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from trainmaster.core.ids import Resource
from trainmaster.local.apiserver.objects.field_error import Cause

Body = dict[str, Any]


class Write(NamedTuple):
    """An object that is about to be stored, and the stored one that it replaces."""

    resource: Resource
    new: Body
    old: Body | None


class Review(NamedTuple):
    """The write is refused when there are causes."""

    causes: Sequence[Cause] = ()
    warnings: Sequence[str] = ()


def _no_operations(_: Write) -> list[Body]:
    return []


def _no_objection(_: Write) -> Review:
    return Review()


class Admission(msgspec.Struct, frozen=True):
    mutate: Callable[[Write], list[Body]] = _no_operations
    """The operations of a JSON patch."""
    validate: Callable[[Write], Review] = _no_objection
