"""The resources besides pods that a node uses."""

from trainmaster.core.ids import Resource

NODE = Resource("", "v1", "nodes", "Node")
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNT = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SECRET = Resource("", "v1", "secrets", "Secret")
