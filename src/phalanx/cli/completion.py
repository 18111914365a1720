"""`phalanx completion`: the script that lets a shell complete verbs, options, and the names of live jobs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    Load it in the startup file of the shell:

    \b
    eval "$(phalanx completion bash)"    in ~/.bashrc
    eval "$(phalanx completion zsh)"     in ~/.zshrc
    phalanx completion fish | source     in ~/.config/fish/config.fish
    """
    script = get_completion_class(shell)
    assert script is not None, f"click knows no {shell}"
    click.echo(script(ctx.find_root().command, {}, "phalanx", "_PHALANX_COMPLETE").source())
