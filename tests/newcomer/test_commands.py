"""Every command in a console block of any document exists: its program, its options, its files, its target.

The walks of test_walk.py are typed in full; the others are about clusters, registries and jobs that a reader has.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from testbed.operator import REPOSITORY
from tests.newcomer.document import Command, documents, steps
from trainmaster.cli.main import cli

READERS_OWN = ("job.yaml", "train.py", "first.yaml", "queue.yaml")
"""Files that the reader has written."""

OTHER_PROGRAMS = {
    ".": "of the shell",
    "cat": "shows a file that a command wrote",
    "cd": "of the shell",
    "curl": "asks a di-server: tests/diserver",
    "docker": "builds and pushes the image, which needs a registry: tests/deploy/test_image.py",
    "echo": "of the shell",
    "eval": "of the shell",
    "export": "of the shell",
    "helm": "installs the chart: tests/deploy/test_release.py",
    "jq": "reads the JSON of our commands",
    "kind": "loads the image into the nodes of its cluster",
    "minikube": "loads the image into the nodes of its cluster",
    "mkdir": "makes a folder",
    "pip": "installs frameworks, which are large: tests/contract",
    "python3": "of the reader",
    "sed": "changes a manifest",
}
"""Programs that are not ours, and why a document types them."""

KUBECTL = {
    *("annotate", "api-resources", "apply", "auth", "config", "cordon", "cp", "create", "delete", "describe", "diff"),
    *("drain", "edit", "events", "exec", "explain", "get", "kustomize", "label", "logs", "patch", "port-forward"),
    *("proxy", "replace", "rollout", "run", "scale", "taint", "top", "uncordon", "version", "wait"),
}

_ASSIGNMENT = re.compile(r"\w+=")
_MANIFEST = re.compile(r"[\w./-]+\.ya?ml")


def simple_commands(text: str) -> Iterator[list[str]]:
    """The commands of a line, without comments, redirections and assignments; those in $(…) too."""
    for inner in re.findall(r"\$\((.*?)\)", text):
        yield from simple_commands(inner)
    lexer = shlex.shlex(re.sub(r"\$\(.*?\)", "x", text), posix=True, punctuation_chars="|&;><")
    lexer.whitespace_split = True
    words: list[str] = []
    is_file = False
    for token in lexer:
        if token in ("|", "||", "&&", ";", "&"):
            yield words
            words = []
        elif token[0] in "<>":
            is_file = True
        elif is_file:
            is_file = False
        elif words or not _ASSIGNMENT.match(token):
            words.append(token)
    if words:
        yield words


def complaint(words: list[str]) -> str:
    """Why this command cannot be typed; empty if it can."""
    program, *rest = words
    if program == "trainmaster":
        return _of_ours(rest)
    if program == "make":
        return _of_make(rest)
    if program == "kubectl":
        return _of_kubectl(rest)
    return "" if program in OTHER_PROGRAMS else f"{program} is not known here; see OTHER_PROGRAMS"


def _of_ours(words: list[str]) -> str:
    if words[:1] == ["--version"]:
        return ""
    try:
        group = click.Context(cli, **cli.context_settings)
        name, command, rest = cli.resolve_command(group, list(words))
        assert command is not None
        with command.make_context(name, rest, parent=group):
            return _missing(words)
    except click.exceptions.Exit:  # --help
        return ""
    except click.ClickException as error:
        return error.format_message()


def _of_make(words: list[str]) -> str:
    targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    unknown = [word for word in words if not _ASSIGNMENT.match(word) and word not in targets]
    return f"there is no target {unknown[0]}" if unknown else ""


def _of_kubectl(words: list[str]) -> str:
    verb = next((word for word in words if not word.startswith("-")), "")
    return _missing(words) if verb in KUBECTL else f"kubectl has no command {verb}"


def _missing(words: list[str]) -> str:
    """A manifest that is neither in the repository nor the reader's own."""
    files = [word for word in words if _MANIFEST.fullmatch(word)]
    missing = [file for file in files if file not in READERS_OWN and not (REPOSITORY / file).exists()]
    return f"there is no file {missing[0]}" if missing else ""


COMMANDS = [
    pytest.param(command, id=f"{document.relative_to(REPOSITORY)}: {command.text}")
    for document in documents()
    for command in steps(document)
    if isinstance(command, Command)
]


def test_the_documents_have_commands() -> None:
    assert len(COMMANDS) > 80


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_document_can_be_typed(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert not [found for words in simple_commands(command.text) if (found := complaint(words))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trainmaster rnu job.yaml", "No such command 'rnu'"),
        ("trainmaster run --replica 2 -- python3 train.py", "No such option '--replica'"),
        ("trainmaster run --replicas two -- python3 train.py", "'two' is not a valid integer"),
        ("trainmaster run examples/nothing.yaml", "there is no file examples/nothing.yaml"),
        ("trainmaster crds | kubectl aply -f -", "kubectl has no command aply"),
        ("kubectl apply -f deploy/nothing.yaml", "there is no file deploy/nothing.yaml"),
        ("make instal", "there is no target instal"),
        ("cd x && terraform apply", "terraform is not known here"),
    ],
)
def test_a_command_that_cannot_be_typed_is_found(text: str, expected: str) -> None:
    [found] = [found for words in simple_commands(text) if (found := complaint(words))]

    assert expected in found
