"""``--controller-config-file``: what pods with an accelerator get from their machine, in the words of the ancestors."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

from trainmaster.core.errors import BadConfig, located
from trainmaster.kinds.accelerator import Accelerator, ControllerConfig


def accelerators_in(file: str) -> Mapping[str, Accelerator]:
    """Raises ``BadConfig`` when it is there and cannot be used: pods that miss their drivers would fail one by one."""
    if not file:
        return {}
    try:
        given = yaml.safe_load(Path(file).read_text()) or {}
        return msgspec.convert(given, ControllerConfig).accelerators
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadConfig(f"--controller-config-file {file} cannot be read: {error}") from error
    except msgspec.ValidationError as error:
        raise BadConfig(f"--controller-config-file {file}: {located(error)}") from error
