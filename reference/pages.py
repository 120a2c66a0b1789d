"""All pages of docs/reference, by file name."""

from inspect import cleandoc
from types import ModuleType

import click
from prometheus_client.metrics import MetricWrapperBase

from reference import forms
from reference.kinds import kind_pages
from reference.markdown import page, section, table, words
from trainmaster.cli import exit_code
from trainmaster.cli.main import cli
from trainmaster.diserver import metrics as diserver
from trainmaster.kinds.base import ActionWords
from trainmaster.runtime import metrics as runtime
from trainmaster.webhook import metrics as webhook

METRICS: dict[str, ModuleType] = {"Operator": runtime, "di-server": diserver, "Webhook": webhook}


def pages() -> dict[str, str]:
    return {
        **kind_pages(),
        "conditions.md": conditions(),
        "metrics.md": metrics(),
        "commands.md": commands(),
        "exit-codes.md": exit_codes(),
        "README.md": index(),
    }


def index() -> str:
    kinds = [f"- [{name.removesuffix('.md')}]({name})" for name in kind_pages()]
    return page(
        "# Reference",
        "Generated from the code. `trainmaster explain` and `kubectl explain` describe fields in the same words.",
        "\n".join(
            (
                *kinds,
                "- [Conditions, reasons and Events](conditions.md)",
                "- [Metrics](metrics.md)",
                "- [Commands and options](commands.md)",
                "- [Exit codes](exit-codes.md)",
            )
        ),
    )


# --- conditions, reasons and Events ---


def _action_reasons() -> dict[str, str]:
    found = {}
    for verb, done in (("Create", "created"), ("Delete", "deleted"), ("Update", "changed")):
        success, failure = (text.format(Verb=verb, kind="Pod") for text in _REASONS)
        found[success] = f"Pods were {done}. The message has their names."
        found[failure] = f"The API server refuses that a pod is {done}. The message has its reason."
    return found


_REASONS = (ActionWords().success_reason, ActionWords().failure_reason)


def conditions() -> str:
    return page(
        "# Conditions, reasons and Events",
        "What all kinds have. The pages of the kinds have the words of one kind.",
        section("## Conditions", words("condition", forms.CONDITIONS)),
        section("## Reasons", "Of conditions and Events.", words("reason", forms.REASONS)),
        section(
            "## Events for pods and services",
            "The same for other objects, for example `SuccessfulCreateService`, and for a job after its time to live. "
            "DIJobs, NerveXJobs and MxJobs leave out the kind: `SuccessfulCreate`.",
            words("reason", _action_reasons()),
        ),
    )


# --- metrics ---


def metrics() -> str:
    return page(
        "# Metrics",
        "`/metrics` of each program has these, and the usual metrics of the process and of Python. "
        "[Operating](../operating.md#health-and-metrics) says which to look at.",
        *(section(f"## {title}", _metric_table(module)) for title, module in METRICS.items()),
    )


def metrics_in(module: ModuleType) -> list[MetricWrapperBase]:
    return [value for value in vars(module).values() if isinstance(value, MetricWrapperBase)]


def _metric_table(module: ModuleType) -> str:
    rows = []
    for metric in metrics_in(module):
        (family,) = metric.describe()
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # noqa: SLF001 nothing public has them
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((f"`{name}`", family.type, labels or "–", f"{family.documentation}."))
    return table(("metric", "type", "labels", "meaning"), sorted(rows))


# --- commands ---


VARIABLES = {
    "KUBECONFIG": "The kubeconfig of all commands that use a cluster, if they have no option for it. May be a list.",
    "HTTP_PROXY": "The proxy for API servers with `http://`; also in lower case.",
    "HTTPS_PROXY": "The proxy for API servers with `https://`; also in lower case.",
    "NO_PROXY": "Names and addresses that no proxy is used for; also in lower case.",
    "KUBERNETES_SERVICE_HOST": "Set in every pod: the address of the API server, with `--run-in-cluster`.",
    "KUBERNETES_SERVICE_PORT": "Set in every pod: the port of the API server, with `--run-in-cluster`.",
    "MY_POD_NAME": "No effect; the mxnet-operator needed it. The operator warns of it.",
    "MY_POD_NAMESPACE": "No effect; the mxnet-operator needed it. The operator warns of it, unless it has --namespace.",
    "POD_UID": "Part of the name under which an operator holds its Leases. The manifests set it.",
    "XDG_STATE_HOME": "The folder that has the state of local mode in `trainmaster`. Default: `~/.local/state`.",
    "PATH": "Where `nvidia-smi` and the programs of jobs are found.",
    "VIRTUAL_ENV": "The virtual environment of programs that are sent to the local cluster of this machine.",
}
"""The environment variables that commands read."""


def commands() -> str:
    return page(
        "# Commands and options",
        "As `trainmaster COMMAND --help` prints them.",
        *(_command(name, command) for name, command in cli.commands.items()),
        section("## Variables", "Environment variables that commands read.", words("variable", VARIABLES)),
    )


def _command(name: str, command: click.Command) -> str:
    # With the settings of the group: click keeps the help option that a command gets in its first context.
    group = click.Context(cli, info_name="trainmaster", **cli.context_settings)
    context = click.Context(command, info_name=name, parent=group)
    usage = " ".join(command.collect_usage_pieces(context))
    shown = [param for param in options_of(command) if not param.hidden]
    hidden = sorted(f"`{param.opts[0]}`" for param in options_of(command) if param.hidden)
    return section(
        f"## {name}",
        f"```text\ntrainmaster {name} {usage}\n```",
        _help(command),
        table(("option", "default", "meaning"), (_option(param, context) for param in shown)) if shown else "",
        f"Accepted without effect: {', '.join(hidden)}." if hidden else "",
    )


def options_of(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option)]


def _help(command: click.Command) -> str:
    return "\n\n".join(map(_paragraph, cleandoc(command.help or "").split("\n\n")))


def _paragraph(text: str) -> str:
    """What click prints as it is, is code."""
    if text.startswith("\b"):
        return "\n".join(("```text", text.removeprefix("\b").strip("\n"), "```"))
    return " ".join(text.split())


def _option(param: click.Option, context: click.Context) -> tuple[str, str, str]:
    record = param.get_help_record(context)
    spelling = record[0] if record else ""
    text = (param.help or "").strip()
    return f"`{spelling}`", _default(param), text


def _default(param: click.Option) -> str:
    value = param.to_info_dict()["default"]
    if value in (None, "", (), False) or param.required or callable(value):
        return "–"
    return f"`{value}`"


# --- exit codes ---


def exit_codes() -> str:
    found = forms.constants(exit_code)
    return page(
        "# Exit codes",
        "Of the commands. Exit codes of the programs of a job are in its status, and `trainmaster why` explains them.",
        table(("code", "meaning"), ((str(code), text) for code, text in found.items())),
    )
