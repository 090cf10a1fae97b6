"""`cleantail completion`: prints the script by which a shell completes at its Tab key."""

from __future__ import annotations

import click

from cleantail_cli.command import CommandWithExamples
from cleantail_cli.completion import SHELLS, script


@click.command(
    "completion",
    cls=CommandWithExamples,
    examples=(
        'eval "$(cleantail completion bash)"                          # in ~/.bashrc',
        'eval "$(cleantail completion zsh)"                           # in ~/.zshrc, after compinit',
        "cleantail completion fish > ~/.config/fish/completions/cleantail.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL", help="bash, zsh or fish.")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print what a shell needs to complete what is typed.

    Commands, options and their values, files, and the names of the configuration's topics.
    """
    print(script(ctx.find_root().command, shell), end="")
    return 0
