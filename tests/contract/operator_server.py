"""DI-engine's own client of di-server, driven line by line, by a Python that has DI-engine and nothing of ours.

    python operator_server.py HOST PORT NAMESPACE POD

A line of stdin is a call, ``["post_replicas", {"data": …}]``; a line of stdout is what it returned, or how it died.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def operator_server() -> Any:
    """The class, from its file: the packages around it would import torch."""
    package = importlib.util.find_spec("ding")
    if package is None or not package.submodule_search_locations:
        sys.exit("this Python has no DI-engine")
    file = Path(package.submodule_search_locations[0]) / "worker" / "coordinator" / "operator_server.py"
    spec = importlib.util.spec_from_file_location("operator_server", file)
    if spec is None or spec.loader is None:
        sys.exit(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.OperatorServer


def main(host: str, port: str, namespace: str, name: str) -> None:
    # As the coordinator makes it: version with a slash, everything by name.
    client = operator_server()(host=host, port=int(port), api_version="/v1alpha1", namespace=namespace, name=name)
    for line in sys.stdin:
        method, fields = json.loads(line)
        try:
            answer = {"returned": getattr(client, method)(**fields)}
        except Exception as error:  # whatever it is, a coordinator would have ended
            answer = {"died": type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
