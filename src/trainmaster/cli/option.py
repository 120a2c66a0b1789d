"""Go's habits on the command line: durations like ``2s`` and ``15m``, booleans as ``--flag=true``."""

import re
from typing import Any

import click

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


class Duration(click.ParamType[float]):
    """Seconds, written as Go writes a duration: ``2s``, ``1m30s``, ``500ms``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if value == "0":
            return 0.0
        if not re.fullmatch(rf"(?:{_PART.pattern})+", str(value)):
            self.fail(f"{value!r} is not a duration; write for example 2s, 1m30s or 500ms", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))


class GoCommand(click.Command):
    """Takes ``--flag=true`` and ``--flag=false`` for every ``--flag/--no-flag``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [self._rewritten(arg) for arg in args])

    def _rewritten(self, arg: str) -> str:
        name, equals, value = arg.partition("=")
        if not equals:
            return arg
        for param in self.params:
            if isinstance(param, click.Option) and param.secondary_opts and name in param.opts:
                return self._flag(param, name, value)
        return arg

    @staticmethod
    def _flag(param: click.Option, name: str, value: str) -> str:
        if value.lower() in ("true", "1", "t"):
            return name
        if value.lower() in ("false", "0", "f"):
            return param.secondary_opts[0]
        raise click.BadParameter(f"{value!r} is neither true nor false", param_hint=name)


# What several commands take, in the same words.
KUBECONFIG = click.option(
    "--kubeconfig", default="", help="Path of a kubeconfig; default $KUBECONFIG, then ~/.kube/config."
)
CONTEXT = click.option("--context", default="", help="Context of the kubeconfig; default its current one.")
MASTER = click.option("--master", default="", help="Address of the API server; overrides the kubeconfig.")
RUN_IN_CLUSTER = click.option(
    "--run-in-cluster/--no-run-in-cluster", default=False, help="Use the pod's service account only."
)
LOG_FORMAT = click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "console"]),
    default="auto",
    show_default=True,
    help="auto: console on a terminal.",
)
