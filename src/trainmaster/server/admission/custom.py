"""What each kind has by custom, as data: the field that its ancestor's webhook filled in, and what a job of it is
meant to look like although it need not. A kind without an entry is checked all the same, and warned of less.
"""

from collections.abc import Mapping

import msgspec

from trainmaster.core.ids import Resource


class Main(msgspec.Struct, frozen=True):
    """The containers that the job is about: a pattern of their names, in which ``{role}`` is that of their template,
    and what happens where none has it."""

    pattern: str
    otherwise: str

    def pattern_of(self, role: str) -> str:
        return self.pattern.format(role=role)


class Custom(msgspec.Struct, frozen=True):
    defaults: Mapping[str, str] = {}
    """Fields of the spec, and what they are when they are left empty."""
    main: Main | None = None
    together: tuple[str, ...] = ()
    """Roles that are asked for together: a job that templates some of them templates all."""
    ending: tuple[str, ...] = ()
    """Roles by whose end the job ends."""


_CUSTOMS: Mapping[tuple[str, str], Custom] = {
    ("diengine.opendilab.org", "DIJob"): Custom(
        defaults={"cleanPodPolicy": "Running"},
        main=Main("di-container", "it gets no port di-port, and side-cars keep its pod alive"),
        together=("collector", "learner"),
        ending=("coordinator",),
    ),
    ("nervex.sensetime.com", "NerveXJob"): Custom(
        defaults={"cleanPodPolicy": "Running"},
        main=Main("{role}", "it gets no port of that name, and side-cars keep its pod alive"),
        together=("collector", "learner"),
        ending=("coordinator",),
    ),
    ("elasticdeeplearning.ai", "AITrainingJob"): Custom(
        main=Main("aitj-*", "none of its ports is published, and none of its exit codes is looked at"),
    ),
}


def custom_of(resource: Resource) -> Custom:
    return _CUSTOMS.get((resource.group, resource.kind), Custom())
