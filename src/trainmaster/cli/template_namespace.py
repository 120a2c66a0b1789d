"""Where operator and di-server read the AggregatorConfig: the template of pods in all namespaces."""

from trainmaster.kube.config import Config
from trainmaster.settings import SYSTEM_NAMESPACE


def template_namespace(given: str, served: str, config: Config) -> str:
    """``given`` is the option, ``served`` the one namespace whose jobs are run. Otherwise it is the namespace of the
    installation: whoever may write there decides what runs beside the jobs of all tenants. A name that is the same on
    all clusters would be free for anybody who can get a namespace of that name."""
    return given or served or config.pod_namespace or SYSTEM_NAMESPACE
