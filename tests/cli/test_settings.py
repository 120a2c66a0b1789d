"""Every default exists once, in trainmaster.settings: the options of the command line read it from there."""

import importlib
import json
import subprocess
import sys
from typing import Any

import click
import pytest

from trainmaster.cli.option import Duration, go_duration

COMMANDS = ("operator", "server", "webhook")

# In a process of its own, before any command was imported.
EDIT = """
import importlib, json, msgspec
from trainmaster import settings

def edited(value):
    match value:
        case msgspec.Struct():
            fields = {name: edited(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        case bool():
            return not value
        case tuple():
            return type(value)(*(f"{part}-edited" for part in value))
        case int() | float():
            return value + 7
        case str():
            return f"{value}9"
    return value

names, found = ("operator", "server", "webhook"), {}
for name in names:
    setattr(settings, name.upper(), edited(getattr(settings, name.upper())))
for name in names:
    command = getattr(importlib.import_module(f"trainmaster.cli.{name}"), name)
    found[name] = command.make_context(name, []).params
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def edited() -> dict[str, dict[str, Any]]:
    """The options of each command, by default, after every default was edited."""
    done = subprocess.run([sys.executable, "-c", EDIT], capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("command", "option", "expected"),
    [
        ("operator", "leader_elect_lease_duration", 22.0),
        ("operator", "leader_elect_renew_deadline", 17.0),
        ("operator", "leader_elect_retry_period", 9.0),
        ("operator", "leader_elect_resource_name", "9"),
        ("operator", "server_url", "di-server.di-system:80809"),
        ("operator", "agconfig_name", "aggregator-config-edited"),
        ("operator", "creating_duration_period", 907.0),
        ("operator", "creating_restart_period", 7.0),
        ("operator", "enable_creating_failed", False),
        ("operator", "node_fail_grace_period", 37.0),
        ("operator", "device_fail_grace_period", 907.0),
        ("operator", "thread_num", 39),
        ("operator", "request_timeout", 37.0),
        ("operator", "metrics_bind_address", ":80809"),
        ("server", "bind_address", ":80809"),
        ("server", "agconfig_name", "aggregator-config-edited"),
        ("server", "max_replicas_per_job", 1007),
        ("server", "max_replicas_per_namespace", 10_007),
        ("server", "shutdown_delay_duration", 10.0),
        ("webhook", "bind_address", ":94439"),
        ("webhook", "secret_name", "trainmaster-webhook-certificate9"),
        ("webhook", "request_timeout", 17.0),
    ],
)
def test_an_edited_default_takes_effect(
    edited: dict[str, dict[str, Any]], command: str, option: str, expected: object
) -> None:
    assert edited[command][option] == expected


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (2.0, "2s"), (0.5, "0.5s"), (90.0, "90s"), (900.0, "15m"), (3600.0, "60m")]
)
def test_a_duration_is_written_as_it_is_read(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("command", COMMANDS)
def test_every_visible_option_has_a_help_text(command: str) -> None:
    found: click.Command = getattr(importlib.import_module(f"trainmaster.cli.{command}"), command)

    options = [param for param in found.params if isinstance(param, click.Option)]
    assert [param.name for param in options if not param.hidden and not param.help] == []
