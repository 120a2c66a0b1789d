"""`trainmaster` as a process of its own, and jobs that are made of a line of shell or Python."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.manifests.build import Manifest, aitrainingjob, container, coordinated, replica, template
from trainmaster.local.node.process import running_shims

PROGRAM = [sys.executable, "-c", "from trainmaster.cli import main; main()"]


class Program:
    """One command. Whatever it writes is kept; a test that waits for a line that never comes is ended by its limit."""

    def __init__(
        self,
        *args: str,
        folder: Path,
        inside: Sequence[str] = (),
        typed_in: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """``folder`` is the home of the user. ``inside`` is a command that runs another one, such as nsenter.
        ``typed_in`` is another working folder than the home, and ``environ`` are more variables of the shell."""
        self.output = ""
        self._said = ""
        # Not a pipe: one that nobody reads would stop whoever logs a lot.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by kill
        self._process = subprocess.Popen(
            [*inside, *PROGRAM, *args],
            cwd=typed_in or folder,
            env={**environ_of(folder), **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def until(self, is_it: Callable[[str], bool]) -> str:
        """The first line of stdout that it is."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output += line
            if is_it(line):
                return line
        raise AssertionError(f"it ended before such a line came: {self.output}{self.errors()}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop_reading(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()

    def end(self) -> tuple[int, str, str]:
        """Exit code, all of stdout, and stderr."""
        assert self._process.stdout is not None
        if not self._process.stdout.closed:
            self.output += self._process.stdout.read()
        return self._process.wait(), self.output, self.errors()

    def errors(self) -> str:
        """What it wrote to stderr up to now."""
        if not self._errors.closed:
            size = os.fstat(self._errors.fileno()).st_size
            self._said = os.pread(self._errors.fileno(), size, 0).decode()  # the position is the writer's
        return self._said

    def kill(self) -> None:
        self._process.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()
        self.errors()
        self._errors.close()


def environ_of(folder: Path) -> dict[str, str]:
    """A user whose home and temporary files are in this folder."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "TERM": "xterm"}


def script(text: str) -> list[str]:
    return ["sh", "-c", text]


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def role(command: list[str], count: int = 1, *, ports: tuple[int, ...] = (), **fields: Any) -> Manifest:
    """A replica whose pods run this command."""
    published = [{"name": f"aitj-{port}", "containerPort": port} for port in ports]
    spec = {"terminationGracePeriodSeconds": fields.pop("grace")} if "grace" in fields else {}
    body = replica(container("aitj-main", command=command, ports=published), replicas=count, **fields)
    body["template"]["spec"] |= spec
    return body


def job(name: str = "job", *, spec: Manifest | None = None, **roles: Manifest) -> Manifest:
    return aitrainingjob(name, replicaSpecs=roles, **(spec or {}))


def serial(command: list[str], name: str = "job", **spec: Any) -> Manifest:
    return coordinated(template(container(command=command)), name, **spec)


def written(folder: Path, *manifests: Manifest, name: str = "job.yaml") -> str:
    """A file with these documents; JSON is YAML, too."""
    file = folder / name
    file.write_text("\n---\n".join(json.dumps(manifest) for manifest in manifests))
    return str(file)


def containers_of(folder: Path) -> list[int]:
    """Processes that watch over containers whose node has its place in this folder."""
    return list(running_shims(folder).values())
