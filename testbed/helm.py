"""Helm, built from its pinned Go module into the user's cache, for the tests of the chart.

`python -m testbed.helm` builds it if it is missing. It is no part of the control plane: most tests do not need it.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.build import KUBERNETES, PLAIN, Binary, Builder, BuildFailed, Site, user_site

_MAJOR, _MINOR, _ = KUBERNETES.removeprefix("v").split(".")
_STAMP = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
# Without the stamp `helm template` writes for Kubernetes 1.20.
_FLAGS = f"{PLAIN} -X {_STAMP}Major={_MAJOR} -X {_STAMP}Minor={_MINOR}"
BINARY = Binary("helm", "helm", "helm.sh/helm/v3/cmd/helm", _FLAGS, "3 min")


class HelmFailed(Exception):
    """helm ended with an error; the message is what it said."""


def site() -> Site:
    modules = Path(__file__).with_name("tools")
    return Site(user_site().cache, modules, binaries=(BINARY,), target="helm")


class Helm:
    """Helm's command line. `home` has its caches, so that nothing of the user is read; `kubeconfig` names a cluster."""

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        self._binary = Builder(site()).build() / BINARY.name
        self._environ = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        self._environ |= {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}

    def __call__(self, *words: str | Path, timeout: float = 120.0, values: str = "") -> str:
        """What a command printed. `values` is YAML, as in a file of values."""
        given: Sequence[str | Path] = ("--values", "-") if values else ()
        done = subprocess.run(
            [self._binary, *words, *given],
            env=self._environ,
            input=values,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise HelmFailed(f"helm {' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


if __name__ == "__main__":
    try:
        print(Builder(site()).build() / BINARY.name)
    except BuildFailed as error:
        sys.exit(f"helm: {error}")
