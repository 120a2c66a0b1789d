"""``--master`` alone: the address of an API server, without credentials.

In client-go it means plain HTTP, which API servers do not speak any more. ``kubectl proxy`` still does.
"""

from trainmaster.core.errors import ApiError, BadConfig, Trainmaster, Unauthorized
from trainmaster.core.ids import NAMESPACE, Key
from trainmaster.kube.config import Config
from trainmaster.runtime.cluster import Cluster

SOURCE = "--master"
_LASTING = ("HTTP request to an HTTPS server", "system:anonymous", "certificate is not trusted")
"""What is in messages of problems that do not pass."""


async def check_master(cluster: Cluster, config: Config) -> None:
    """Raises ``BadConfig`` if the server needs credentials. Anything else is left to the first real request."""
    if config.source != SOURCE:
        return
    try:
        await cluster.get(NAMESPACE, Key("", "default"))
    except Trainmaster as error:
        message = error.message if isinstance(error, ApiError) else str(error)
        if isinstance(error, Unauthorized) or any(words in message for words in _LASTING):
            raise BadConfig(
                f"--master {config.server} has no credentials, and the API server needs them ({error}); "
                "add --kubeconfig FILE: credentials come from it, and --master replaces its address"
            ) from error
