"""What a kind has by custom, as data: the field that its ancestor's webhook filled in, and what a job of it is meant to
look like although it need not.
"""

from collections.abc import Mapping

import msgspec


class Main(msgspec.Struct, frozen=True):
    """The containers that the job is about: a pattern of their names, in which ``{role}`` is that of their template,
    and what happens where none has it, empty where all containers are meant then."""

    pattern: str
    otherwise: str = ""

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
    declares_ports: bool = True
    """The ports of a pod are those that its containers declare."""
