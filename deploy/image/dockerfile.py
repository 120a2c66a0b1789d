"""What the Dockerfile says about the finished image, so that both ways to build it cannot differ."""

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

DOCKERFILE = Path(__file__).resolve().parents[2] / "Dockerfile"


class Settings(NamedTuple):
    """The last stage of the Dockerfile."""

    prefix: str
    """Where the virtual environment is."""
    env: dict[str, str]
    user: str
    entrypoint: list[str]


def settings(text: str) -> Settings:
    """Read the last stage."""
    lines = re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", " ").splitlines()
    instructions = [line.strip().partition(" ")[::2] for line in lines if line.strip()]
    last = max(index for index, (name, _) in enumerate(instructions) if name == "FROM")
    stage = dict(instructions[last:])
    return Settings(
        prefix=stage["COPY"].split()[-1],
        env=dict(word.partition("=")[::2] for word in shlex.split(stage["ENV"])),
        user=stage["USER"],
        entrypoint=json.loads(stage["ENTRYPOINT"]),
    )


def expand(env: dict[str, str], base: dict[str, str]) -> dict[str, str]:
    """The variables of an image on a base that has these."""
    return {**base, **{key: re.sub(r"\$(\w+)", lambda m: base.get(m[1], ""), value) for key, value in env.items()}}
