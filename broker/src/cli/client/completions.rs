//! `broker completions`: completion scripts for shells.

use clap::{Args, ValueEnum};
use clap_complete::{Shell, generate};

use crate::terminal::ending::Ending;
use crate::terminal::text::print_line;

/// Prints the completion script of a shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mkdir -p ~/.local/share/bash-completion/completions ~/.zfunc ~/.config/fish/completions\n  broker completions bash > ~/.local/share/bash-completion/completions/broker\n  broker completions zsh > ~/.zfunc/_broker\n  broker completions fish > ~/.config/fish/completions/broker.fish\n\nzsh finds them with this line in ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit && compinit"
)]
pub(in crate::cli) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: KnownShell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn run(args: &CompletionsArgs, mut whole: clap::Command) -> Result<(), Ending> {
    let shell = match args.shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut whole, "broker", &mut script);
    Ok(print_line(String::from_utf8_lossy(&script).trim_end())?)
}
