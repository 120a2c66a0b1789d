"""The embedded API server in the place of the real one: for tests that must not tell the difference.

    with EmbeddedPlane() as plane:
        plane.kubectl("get", "pods")

It is a process of its own, so that a crash is a crash. There is no RBAC: every user is the one user. Only the API is
there: no node, no operator, and pods are not bound, as on a `ControlPlane`.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.plane import APISERVER, START_TIMEOUT, ControlPlane, User, free_port
from testbed.process import Process

REPOSITORY = Path(__file__).parent.parent


class EmbeddedPlane(ControlPlane):
    """A plane whose API server is ours. Its data is in a file, so it survives `restart_apiserver`."""

    has_rbac = False

    def __init__(self, *, users: Mapping[str, User] | None = None, binaries: Path | None = None) -> None:
        super().__init__(users=users, binaries=binaries)
        self._tokens = dict.fromkeys(self._tokens, self.admin_token)

    def apply(self, manifest: str | Path) -> None:
        """By kubectl's own merging: server-side apply is not supported."""
        text = manifest.read_text() if isinstance(manifest, Path) else manifest
        self.kubectl("apply", "--filename=-", input=text)

    def _command(self, name: str, arguments: Sequence[str]) -> list[str | Path]:
        if name != APISERVER:
            return super()._command(name, arguments)
        return [sys.executable, "-m", "testbed.embedded", *arguments]

    def _start_core(self) -> None:
        self._port = free_port()
        self._write_kubeconfigs()
        self._start_apiserver()

    def _start_apiserver(self) -> None:
        process: Process = self._spawn(
            APISERVER,
            f"--database={self.folder / 'objects.db'}",
            f"--token-file={self._token_file}",
            f"--certificate={self._server.certificate}",
            f"--key={self._server.key}",
            f"--port={self._port}",
        )
        process.wait_ready(self._is_ready, within=START_TIMEOUT)


async def _serve(options: argparse.Namespace) -> None:
    from trainmaster.local.apiserver.http.server import ApiOptions, serve_api

    token = options.token_file.read_text().partition(",")[0]
    async with serve_api(
        ApiOptions(
            database=options.database,
            token=token,
            certificate=options.certificate,
            key=options.key,
            port=options.port,
        )
    ):
        await asyncio.Event().wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", required=True)
    parser.add_argument("--port", type=int, required=True)
    for name in ("--token-file", "--certificate", "--key"):
        parser.add_argument(name, type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(_serve(_options()))
