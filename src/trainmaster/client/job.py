"""A job that is described by arguments instead of a manifest."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from trainmaster.client import program
from trainmaster.client.errors import Refused
from trainmaster.client.manifest import Document

Framework = Literal["", "torch", "tensorflow", "paddle", "mxnet", "jax"]
Restart = Literal["", "never", "onfailure", "always"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A program that runs in several replicas, as an AITrainingJob.

    It is what ``trainmaster run --replicas 2 -- python3 train.py`` describes with options:

    >>> job = Job("mnist", replicas=2, command=["python3", "train.py"], framework="torch")
    >>> job.name, job.replicas
    ('mnist', 2)
    """

    name: str | None = field(default=None, kw_only=False)
    """Default: from the program, with a number if there is such a job: train, train-2."""
    command: Sequence[str]
    """The program and its arguments. It is not run by a shell."""
    replicas: int = 1
    """The number of workers."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """More roles with their replicas, for example ``{"ps": 1}``. The job does not wait for ``ps`` and ``server``."""
    framework: Framework = ""
    """What the program trains with; its variables are set (docs/frameworks.md)."""
    restart: Restart = ""
    """When failed replicas restart: ``onfailure`` at most three times. Default: never."""
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    """GPUs of each replica."""
    image: str = ""
    """The image on a cluster; local mode has no images."""
    workdir: str | Path = ""
    """The working directory. Default: of the image on a cluster, the current one in local mode."""


def document_of(job: Job, *, is_local: bool) -> Document:
    """The manifest of the job. Raises ``Refused`` with all that is wrong."""
    if problems := list(_problems(job)):
        raise Refused(f"Job({'' if job.name is None else repr(job.name)}): {'; '.join(problems)}")
    options = program.ProgramOptions(
        name=job.name or "",
        replicas=None if program.WORKER in job.roles else job.replicas,
        roles=tuple(f"{role}={count}" for role, count in job.roles.items()),
        restart=job.restart,
        env=tuple(f"{name}={value}" for name, value in job.env.items()),
        framework=job.framework,
        gpus=job.gpus,
        image=job.image,
    )
    document = program.job_of(tuple(job.command), options, {})
    if job.workdir:
        for role in document.body["spec"]["replicaSpecs"].values():
            role["template"]["spec"]["containers"][0]["workingDir"] = str(job.workdir)
    if is_local:
        document = program.sent_from(document, Path.cwd(), os.environ)
    renaming = "give this one another name, or submit it with unique=True"
    return msgspec.structs.replace(document, where=f"Job({document.key.name!r})", renaming=renaming)


def _problems(job: Job) -> list[str]:
    """What the command line refuses before there is a manifest."""
    has_words = not isinstance(job.command, str | bytes) and all(isinstance(word, str) for word in job.command)
    counts = {"replicas": job.replicas, **{f"roles[{role!r}]": count for role, count in job.roles.items()}}
    checks = (
        (job.name == "", "name: is empty; give it one, or leave it out"),
        (not has_words, "command: must be a list of words, like ['python3', 'train.py']"),
        (has_words and not job.command, "command: is empty; write the program, like ['python3', 'train.py']"),
        *((_is_no_count(count), f"{name}: {count!r} is not a positive number") for name, count in counts.items()),
        (_is_no_count(job.gpus, least=0), f"gpus: {job.gpus!r} is not a number of GPUs"),
        *((not role or "=" in role, f"roles: {role!r} is not a name") for role in job.roles),
        *_unknown("framework", job.framework, program.FRAMEWORKS),
        *_unknown("restart", job.restart, program.RESTART_POLICIES),
        *((not program.VARIABLE.fullmatch(name), f"env: {name!r} is not the name of a variable") for name in job.env),
    )
    return [problem for is_wrong, problem in checks if is_wrong]


def _is_no_count(value: object, least: int = 1) -> bool:
    return isinstance(value, bool) or not isinstance(value, int) or value < least


def _unknown(name: str, value: str, known: Mapping[str, str]) -> list[tuple[bool, str]]:
    return [(value not in ("", *known), f"{name}: {value!r} is not known; choose one of {', '.join(known)}")]
