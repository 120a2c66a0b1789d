"""Go's habits on the command line: durations like ``2s`` and ``15m``, booleans as ``--flag=true``."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
import structlog

log = structlog.get_logger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


class Duration(click.ParamType[float]):
    """Seconds, written as Go writes a duration: ``2s``, ``1m30s``, ``500ms``; or ``takes_seconds`` without a unit."""

    name = "duration"

    def __init__(self, *, takes_seconds: bool = False) -> None:
        self._takes_seconds = takes_seconds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if value == "0" or (self._takes_seconds and re.fullmatch(r"\d+(\.\d+)?", str(value))):
            return float(value)
        if not re.fullmatch(rf"(?:{_PART.pattern})+", str(value)):
            self.fail(f"{value!r} is not a duration; write for example 2s, 1m30s or 500ms", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))


def go_duration(seconds: float) -> str:
    """As Go writes it; whole minutes and seconds are enough for defaults."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:g}m" if minutes and not rest else f"{seconds:g}s"


class GoCommand(click.Command):
    """Takes ``--flag=true`` and ``--flag=false`` for every ``--flag/--no-flag``, and one dash instead of two."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [self._rewritten(self._with_two_dashes(arg)) for arg in args])

    def _with_two_dashes(self, arg: str) -> str:
        known = {name for param in self.params for name in param.opts}
        name = arg.partition("=")[0]
        return f"-{arg}" if f"-{name}" in known and name not in known else arg

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


class Ignored:
    """Options of older programs. They are accepted and have no effect. Flags have no value; ``letters`` are the short
    names of options."""

    def __init__(self, *values: str, flags: tuple[str, ...] = (), letters: Mapping[str, str] | None = None) -> None:
        self._names = (*values, *flags)
        short = letters or {}
        self._options = [(f"--{name}", *([f"-{short[name]}"] if name in short else [])) for name in values]
        self._options += [(f"--{name}/--no-{name}",) for name in flags]

    def __call__(self, command: F) -> F:
        for option in self._options:
            command = click.option(*option, default=None, hidden=True)(command)
        return command

    def drop(self, given: dict[str, Any]) -> None:
        """Removes them from the options of a command, and warns of each that was given."""
        for name in self._names:
            if given.pop(name.replace("-", "_")) is not None:
                log.warning("option has no effect and is ignored", option=f"--{name}")


COMMON_V1_1 = ("qps", "burst", "zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding")
"""Options of DI-orchestrator v1.1, of operator and server."""
ZAP_FLAGS = ("zap-devel",)


class ProgramCommand(click.Command):
    """Takes a program with its arguments after ``--``, apart from the command's own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[_PROGRAM] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


_PROGRAM = f"{__name__}.program"


def program_of(context: click.Context) -> tuple[str, ...] | None:
    """What stands after ``--``; None without ``--``."""
    found: tuple[str, ...] | None = context.meta.get(_PROGRAM)
    return found


# What several commands take, in the same words.
KUBECONFIG = click.option(
    "--kubeconfig", default="", help="Path of the kubeconfig. Default: $KUBECONFIG, then ~/.kube/config."
)
CONTEXT = click.option("--context", default="", help="Context of the kubeconfig. Default: its current context.")
MASTER = click.option(
    "--master",
    default="",
    help="Address of the API server, instead of that in the kubeconfig. Alone: without credentials.",
)
RUN_IN_CLUSTER = click.option(
    "--run-in-cluster/--no-run-in-cluster", default=False, help="Use the service account of the pod."
)
LOG_FORMAT = click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "console"]),
    default="auto",
    show_default=True,
    help="Format of the log; auto is console on a terminal, else json.",
)
