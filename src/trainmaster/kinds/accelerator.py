"""The file that ``--controller-config-file`` names: what pods that use an accelerator get from their machine."""

from trainmaster.core.wire import Wire


class HostVolume(Wire, frozen=True):
    """A folder of the machine, and where containers find it."""

    name: str
    host_path: str
    mount_path: str
    read_only: bool = True
    """Every job that requests the resource mounts the folder, in every namespace."""


class EnvVar(Wire, frozen=True):
    name: str
    value: str = ""


class Accelerator(Wire, frozen=True):
    volumes: tuple[HostVolume, ...] = ()
    env_vars: tuple[EnvVar, ...] = ()


class ControllerConfig(Wire, frozen=True):
    """``accelerators`` by the name of their resource, say ``nvidia.com/gpu``."""

    accelerators: dict[str, Accelerator] = {}
