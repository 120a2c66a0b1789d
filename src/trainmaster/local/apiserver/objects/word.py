"""What the names of containers, ports, environment variables and keys of data may look like."""

import re

_LONGEST_LABEL = 63
_LONGEST_KEY = 253
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_ADVICE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_PORT = re.compile(r"[-a-z0-9]+")
_PORT_LENGTH = 15
_ENV_ADVICE = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_ADVICE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def label_complaints(name: str) -> list[str]:
    """All that is wrong with one label of a DNS name."""
    complaints = []
    if len(name) > _LONGEST_LABEL:
        complaints.append(f"must be no more than {_LONGEST_LABEL} characters")
    if not _LABEL.fullmatch(name):
        complaints.append(_LABEL_ADVICE)
    return complaints


def port_complaints(name: str) -> list[str]:
    """All that is wrong with the name of a port."""
    checks = (
        (len(name) > _PORT_LENGTH, f"must be no more than {_PORT_LENGTH} characters"),
        (not _PORT.fullmatch(name), "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (not re.search(r"[a-z]", name), "must contain at least one letter (a-z)"),
        ("--" in name, "must not contain consecutive hyphens"),
        (name.startswith("-") or name.endswith("-"), "must not begin or end with a hyphen"),
    )
    return [says for is_wrong, says in checks if is_wrong]


def env_complaints(name: str) -> list[str]:
    """All that is wrong with the name of an environment variable."""
    is_fine = name and all(" " <= char <= "~" and char != "=" for char in name)
    return [] if is_fine else [_ENV_ADVICE]


def config_key_complaints(key: str) -> list[str]:
    """All that is wrong with a key of a ConfigMap or Secret."""
    complaints = []
    if len(key) > _LONGEST_KEY:
        complaints.append(f"must be no more than {_LONGEST_KEY} characters")
    if key in (".", ".."):
        complaints.append(f"must not be '{key}'")
    if not _CONFIG_KEY.fullmatch(key):
        complaints.append(_CONFIG_KEY_ADVICE)
    return complaints
