"""A job that is described by options instead of a manifest: ``trainmaster run --replicas 2 -- python train.py``."""

import copy
import itertools
import os
import re
import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from trainmaster.client.manifest import Document, document_of
from trainmaster.core.errors import BadConfig
from trainmaster.kinds.aitrainingjob.types import RESOURCE

WORKER = "worker"
SERVERS = ("ps", "server")
"""Roles of parameter servers. They do not end by themselves: the job succeeds with the other roles."""
IMAGE = "python:3-slim"
PORT = 29500
"""Published, so that replicas find each other by ``WORKER_HOSTS``."""
RESTART_LIMIT = 3
"""Restarts of a role under ``onfailure``, so that a wrong program does not restart for ever."""
LONGEST_NAME = 40
"""Leaves room for the role and the index in the names of pods."""

RESTART_POLICIES = {"never": "Never", "onfailure": "OnFailure", "always": "Always"}
FRAMEWORKS = {"torch": "pytorch", "tensorflow": "tensorflow", "paddle": "paddle", "mxnet": "mxnet", "jax": "jax"}
"""The names on the command line, and the values of ``spec.frameworkType``."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_PROGRAMS = {".py": ("python", "python3"), ".sh": ("sh",)}
"""What runs a file, by its suffix: the first that is in PATH."""


class ProgramOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that describe a job; empty values were not given."""

    name: str = ""
    replicas: int | None = None
    roles: tuple[str, ...] = ()
    restart: str = ""
    env: tuple[str, ...] = ()
    env_file: Path | None = None
    framework: str = ""
    gpus: int = 0
    image: str = ""


NOTHING = ProgramOptions()


def job_of(program: Sequence[str], options: ProgramOptions, environ: Mapping[str, str]) -> Document:
    """``environ`` has the values of variables that are given by name only."""
    roles = _roles(options)
    servers = [role for role in roles if role in SERVERS]
    ends_without_servers = bool(servers) and len(servers) < len(roles)
    template = {"spec": {"containers": [_container(program, options, environ)]}}
    spec: dict[str, Any] = {"frameworkType": FRAMEWORKS[options.framework]} if options.framework else {}
    spec["cleanPodPolicy"] = "Running"  # pods that have ended are kept, and their logs with them
    if ends_without_servers:
        spec["completePolicy"] = "Any"
    spec["replicaSpecs"] = {
        role: {
            "replicas": count,
            **({"completePolicy": "None"} if ends_without_servers and role in servers else {}),
            **_restart_rules(options.restart),
            "template": template,
        }
        for role, count in roles.items()
    }
    derived = "" if options.name else name_of(program)
    metadata = {"name": options.name or derived}
    body = {"apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind, "metadata": metadata, "spec": spec}
    document = document_of(body, "the command line")
    return msgspec.structs.replace(document, derived_name=derived, renaming="choose another --name")


def sent_from(document: Document, folder: Path, environ: Mapping[str, str]) -> Document:
    """The job for a local cluster that may have been started elsewhere: its program runs in ``folder``, and is found as
    in the shell with ``environ``. What the job says itself takes precedence. No other variables are stored with the
    job, because they may be secrets."""
    variables = {"PATH": environ.get("PATH", os.defpath), "VIRTUAL_ENV": environ.get("VIRTUAL_ENV", "")}
    for what, text in {"the working folder": str(folder), **variables}.items():
        if not _is_utf8(text):
            raise BadConfig(f"{what} {text!r} is not UTF-8 text, and a job cannot have it; rename the folder")
    body = copy.deepcopy(document.body)
    for role in body["spec"]["replicaSpecs"].values():
        for container in role["template"]["spec"]["containers"]:
            container.setdefault("workingDir", str(folder))
            env = container.setdefault("env", [])
            given = {entry.get("name") for entry in env}
            env += [{"name": name, "value": _literal(text)} for name, text in variables.items() if name not in given]
    return msgspec.structs.replace(document, body=body)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_of(program: Sequence[str]) -> str:
    """The name of a job that runs this program, from its file or module, as the names of pods allow it."""
    words = re.sub(r"[^a-z0-9]+", "-", _subject(program).lower())
    return re.sub(r"^[^a-z]+", "", words)[:LONGEST_NAME].strip("-") or "job"


def free_name(name: str, taken: Container[str]) -> str:
    """``train``, ``train-2``, ``train-3`` and so on: the first that is not taken."""
    numbered = (suffixed(name, str(number)) for number in itertools.count(2))
    return next(each for each in itertools.chain((name,), numbered) if each not in taken)


def suffixed(name: str, suffix: str) -> str:
    return f"{name[: LONGEST_NAME - len(suffix) - 1].rstrip('-')}-{suffix}"


def instead_of(files: Sequence[str]) -> str:
    """What to type if the files are a program and not manifests; empty if they may be manifests."""
    first = files[0]
    if runner := _PROGRAMS.get(PurePath(first).suffix):
        return " ".join((next(filter(shutil.which, runner), runner[0]), *files))
    is_command = not Path(first).exists() and PurePath(first).suffix == "" and shutil.which(first)
    return " ".join(files) if is_command else ""


def _subject(program: Sequence[str]) -> str:
    arguments = program[1:]
    if "-m" in arguments[:-1]:
        return arguments[arguments.index("-m") + 1]
    script = next((word for word in arguments if PurePath(word).suffix in _PROGRAMS), program[0])
    return PurePath(script).stem


def _container(program: Sequence[str], options: ProgramOptions, environ: Mapping[str, str]) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "aitj-main",
        "image": options.image or IMAGE,
        "command": [_literal(word) for word in program],
        "ports": [{"name": f"aitj-{PORT}", "containerPort": PORT}],
    }
    if variables := _variables(options, environ):
        container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    if options.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": options.gpus}}
    return container


def _literal(word: str) -> str:
    """Kubernetes expands ``$(NAME)`` and ``$$`` in commands; a program gets what was typed."""
    return word.replace("$", "$$") if "$$" in word or "$(" in word else word


def _roles(options: ProgramOptions) -> dict[str, int]:
    """The number of replicas of each role."""
    roles: dict[str, int] = {}
    for text in options.roles:
        role, _, count = text.partition("=")
        if not role or not (count.isascii() and count.isdecimal()):
            raise BadConfig(f"--role {text}: has no name and number; write it like --role ps=1")
        if role in roles:
            raise BadConfig(f"--role {text}: there is also --role {role}={roles[role]}; remove one of them")
        roles[role] = int(count)
    if options.replicas is None:
        return roles or {WORKER: 1}
    if WORKER in roles:
        raise BadConfig(
            f"--replicas {options.replicas} and --role {WORKER}={roles[WORKER]} are about the same role; "
            "remove one of them"
        )
    return {**roles, WORKER: options.replicas}


def _restart_rules(restart: str) -> dict[str, Any]:
    if not restart:
        return {}
    limit = {"restartLimit": RESTART_LIMIT} if restart == "onfailure" else {}
    return {"restartPolicy": RESTART_POLICIES[restart], **limit}


def _variables(options: ProgramOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """Those of the file, then those of the options, which take precedence."""
    found: dict[str, str] = {}
    for where, text in (*_lines_of(options.env_file), *(("--env", text) for text in options.env)):
        name, equals, value = text.partition("=")
        if not VARIABLE.fullmatch(name):
            raise BadConfig(
                f"{where}: {text!r} is not a variable; write NAME=VALUE, or NAME to take it from your shell"
            )
        if not equals and name not in environ:
            raise BadConfig(f"{where}: {name} is not set in your shell; set it, or write {name}=VALUE")
        found[name] = value if equals else environ[name]
    return found


def _lines_of(file: Path | None) -> Iterator[tuple[str, str]]:
    """``NAME=VALUE`` in each line, with its place; empty lines and lines that begin with # are skipped."""
    if file is None:
        return
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadConfig(f"--env-file {file}: {why}; check the path") from error
    for number, line in enumerate(text.split("\n"), 1):
        if (stripped := line.strip()) and not stripped.startswith("#"):
            yield f"{file}, line {number}", _unquoted(stripped.removeprefix("export "))


def _unquoted(line: str) -> str:
    name, equals, value = line.partition("=")
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return f"{name}{equals}{value}"
