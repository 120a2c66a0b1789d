"""What a label, and everything that is spelled like one, may look like."""

import re

_WORD = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_WORD = 63
_LONGEST_SUBDOMAIN = 253

SUBDOMAIN_ADVICE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_VALUE_ADVICE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_ADVICE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_KEY_ADVICE = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)


def key_complaints(key: str) -> list[str]:
    """All that is wrong with a qualified name: of a label, an annotation, a finalizer."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [_KEY_ADVICE]
    complaints = []
    if slash and not prefix:
        complaints.append("prefix part must be non-empty")
    elif slash:
        complaints += [f"prefix part {each}" for each in subdomain_complaints(prefix)]
    if not name:
        complaints.append("name part must be non-empty")
    elif len(name) > _LONGEST_WORD:
        complaints.append(f"name part must be no more than {_LONGEST_WORD} bytes")
    if not _WORD.fullmatch(name):
        complaints.append(_NAME_ADVICE)
    return complaints


def value_complaints(value: str) -> list[str]:
    complaints = []
    if len(value) > _LONGEST_WORD:
        complaints.append(f"must be no more than {_LONGEST_WORD} bytes")
    if value and not _WORD.fullmatch(value):
        complaints.append(_VALUE_ADVICE)
    return complaints


def subdomain_complaints(name: str) -> list[str]:
    complaints = []
    if len(name) > _LONGEST_SUBDOMAIN:
        complaints.append(f"must be no more than {_LONGEST_SUBDOMAIN} characters")
    if not _SUBDOMAIN.fullmatch(name):
        complaints.append(SUBDOMAIN_ADVICE)
    return complaints
