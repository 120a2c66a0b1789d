"""The command: python -m testbed.cluster up | down | status | kill NODE | start NODE | partition NODE | heal NODE"""

import argparse
import sys
from collections.abc import Sequence

from deploy.image.base import ImageFailed
from testbed.build import BuildFailed
from testbed.cluster import network
from testbed.cluster.build import NotPossible
from testbed.cluster.cluster import Cluster, ClusterFailed, IsUp, NotUp
from testbed.cluster.network import NetworkTaken

NODE_VERBS = {
    "kill": "power a node off",
    "start": "power a node on",
    "partition": "cut a node off the network; its pods go on",
    "heal": "connect it again",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when it is done, 1 with one sentence when not."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.cluster", description="A real cluster of three nodes on this machine; needs root."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="build what is missing and start it")
    verbs.add_parser("down", help="end it and remove everything")
    verbs.add_parser("status", help="show nodes and pods")
    for verb, text in NODE_VERBS.items():
        verbs.add_parser(verb, help=text).add_argument("node", help="node1, node2 or node3")
    chosen = parser.parse_args(arguments)
    try:
        _do(Cluster(), chosen)
    except (
        BuildFailed,
        ImageFailed,
        NotPossible,
        ClusterFailed,
        IsUp,
        NotUp,
        NetworkTaken,
        OSError,
        ValueError,
    ) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


def _do(cluster: Cluster, chosen: argparse.Namespace) -> None:
    match chosen.verb:
        case "up":
            cluster.up()
            print(f"export KUBECONFIG={cluster.kubeconfig}")
        case "down":
            cluster.down()
        case "status":
            print(_status(cluster))
        case verb:
            getattr(cluster, verb)(chosen.node)


def _status(cluster: Cluster) -> str:
    if not cluster.is_up:
        raise NotUp("no cluster is up: make cluster starts one")
    lines = [f"KUBECONFIG={cluster.kubeconfig}"]
    for name, node in cluster.nodes.items():
        power = "on" if node.is_running else "off"
        lines.append(f"{name}: {power}{', partitioned' if network.is_partitioned(node.place) else ''}")
    return "\n".join([*lines, cluster.kubectl("get", "nodes,pods", "--all-namespaces", "--output=wide")])


if __name__ == "__main__":
    sys.exit(main())
