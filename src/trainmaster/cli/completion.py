"""``trainmaster completion``: what a shell needs to complete commands, options and their values."""

import click


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, /, shell: str) -> None:
    """Print the script with which a shell completes this command.

    The script runs `trainmaster` for each completion, so it need not be written again after an update.

    \b
    Example:
      trainmaster completion fish > ~/.config/fish/completions/trainmaster.fish
      eval "$(trainmaster completion bash)"   # in ~/.bashrc
      eval "$(trainmaster completion zsh)"    # in ~/.zshrc
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    complete = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    click.echo(complete(context.find_root().command, {}, "trainmaster", "_TRAINMASTER_COMPLETE").source())
