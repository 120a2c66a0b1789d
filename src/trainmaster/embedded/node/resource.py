"""The resources that a node reads and writes besides pods."""

from trainmaster.core.ids import Resource

NODE = Resource("", "v1", "nodes", "Node")
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
SECRET = Resource("", "v1", "secrets", "Secret")
