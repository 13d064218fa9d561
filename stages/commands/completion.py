"""`dicap-stage completion`: the shell completes commands and options."""

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
      bash  dicap-stage completion bash > ~/.dicap-complete && echo '. ~/.dicap-complete' >> ~/.bashrc
      zsh   dicap-stage completion zsh > ~/.dicap-complete && echo '. ~/.dicap-complete' >> ~/.zshrc
      fish  dicap-stage completion fish > ~/.config/fish/completions/dicap-stage.fish
    """
    from click.shell_completion import get_completion_class

    from stages.cli import main

    kind = get_completion_class(shell)
    assert kind is not None, shell
    click.echo(kind(main, {}, "dicap-stage", "_DICAP_STAGE_COMPLETE").source())
