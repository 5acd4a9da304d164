//! Colours on terminals that have them: headings are bold, states and the first word of an error
//! have a colour. `NO_COLOR` and `CLICOLOR_FORCE` decide, as for the help.

use std::sync::OnceLock;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Style};

use crate::terminal::screen::is_stdout_left;

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Colours {
    are_shown: bool,
}

impl Colours {
    /// None.
    pub(crate) const NONE: Self = Self { are_shown: false };
    /// All of them, on any terminal.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self { are_shown: true };

    /// Those of stdout; none if programs read it.
    pub(crate) fn of_stdout() -> Self {
        static OF_STDOUT: OnceLock<Colours> = OnceLock::new();
        match is_stdout_left() {
            true => Self::NONE,
            false => *OF_STDOUT.get_or_init(|| Self::of(&std::io::stdout())),
        }
    }

    /// Those of stderr.
    pub(crate) fn of_stderr() -> Self {
        static OF_STDERR: OnceLock<Colours> = OnceLock::new();
        *OF_STDERR.get_or_init(|| Self::of(&std::io::stderr()))
    }

    fn of(stream: &impl RawStream) -> Self {
        // Unit tests compare texts, whatever terminal they run on.
        let are_shown = !cfg!(test) && AutoStream::choice(stream) != ColorChoice::Never;
        Self { are_shown }
    }

    /// Whether there are any.
    pub(crate) fn are_shown(self) -> bool {
        self.are_shown
    }

    /// A heading.
    pub(crate) fn heading(self, text: &str) -> String {
        self.painted(Style::new().bold(), text)
    }

    /// The first word of an error, in the same colour as errors of the command line itself.
    pub(crate) fn error(self, word: &str) -> String {
        self.painted(coloured(AnsiColor::Red).bold(), word)
    }

    /// The first word of a warning.
    pub(crate) fn warning(self, word: &str) -> String {
        self.painted(coloured(AnsiColor::Yellow).bold(), word)
    }

    /// A state or a verdict in words, or the start of one: green if good, red if failed, yellow if still
    /// in progress.
    pub(crate) fn state(self, words: &str) -> String {
        match colour_of(words) {
            Some(colour) => self.painted(coloured(colour), words),
            None => words.to_owned(),
        }
    }

    fn painted(self, style: Style, text: &str) -> String {
        match self.are_shown && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }
}

fn coloured(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(colour.into()))
}

/// The colour of a state of a reservation, lease, node or check, in words; `None` for one that is over or
/// unknown.
fn colour_of(words: &str) -> Option<AnsiColor> {
    let (state, why) = words.split_once(" (").unwrap_or((words, ""));
    match state.split(' ').next()? {
        "active" | "passed" | "pass" | "pass_with_warnings" | "handed" | "met" => {
            Some(AnsiColor::Green)
        }
        "fail" | "failed" => Some(AnsiColor::Red),
        "closed" => {
            let wished = ["released", "cancelled", "window"];
            let went_well = why.is_empty() || wished.iter().any(|word| why.starts_with(word));
            (!went_well).then_some(AnsiColor::Red)
        }
        "held" | "scheduled" | "confirmed" | "provisioning" | "replacing" | "handing"
        | "repairing" | "withdrawn" | "releasing" | "requested" | "booting" | "verifying"
        | "inconclusive" | "warned" | "not_run" => Some(AnsiColor::Yellow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use market::attestation::Verdict;
    use market::lease::LeaseState;
    use market::reservation::{CloseReason, ReservationState};

    use crate::terminal::colour::*;

    #[test]
    fn every_state_and_verdict_has_the_colour_of_how_it_goes() {
        use ReservationState as R;
        let held = [
            R::Held,
            R::Scheduled,
            R::Confirmed,
            R::Provisioning,
            R::Replacing,
            R::HandingOff,
            R::Repairing,
        ];
        let waiting = held.into_iter().chain(CloseReason::ALL.map(R::Releasing));
        for state in waiting.map(|state| state.to_string()) {
            let words = state.replace('_', " ");
            assert_eq!(colour_of(&words), Some(AnsiColor::Yellow), "{words}");
        }
        assert_eq!(
            colour_of("active (release asked for)"),
            Some(AnsiColor::Green)
        );
        for reason in CloseReason::ALL {
            let reason = reason.as_str().replace('_', " ");
            let wished = ["released", "cancelled", "window ended"].contains(&reason.as_str());
            let colour = (!wished).then_some(AnsiColor::Red);
            assert_eq!(colour_of(&format!("closed ({reason})")), colour, "{reason}");
        }
        for state in LeaseState::ALL {
            let words = state.to_string().replace('_', " ");
            let colour = match state {
                LeaseState::Gone => None,
                LeaseState::Passed | LeaseState::HandedOff => Some(AnsiColor::Green),
                _ => Some(AnsiColor::Yellow),
            };
            assert_eq!(colour_of(&words), colour, "{words}");
        }
        for verdict in [Verdict::Pass, Verdict::PassWithWarnings] {
            assert_eq!(colour_of(verdict.as_str()), Some(AnsiColor::Green));
        }
        assert_eq!(colour_of(Verdict::Fail.as_str()), Some(AnsiColor::Red));
        assert_eq!(
            colour_of(Verdict::Inconclusive.as_str()),
            Some(AnsiColor::Yellow)
        );
        assert_eq!(colour_of("a name"), None);
    }

    #[test]
    fn without_colours_a_text_stays_as_it_is() {
        assert_eq!(Colours::NONE.error("error:"), "error:");
        assert_eq!(Colours::NONE.state("active"), "active");
        assert_eq!(Colours::ALL.state("active"), "\u{1b}[32mactive\u{1b}[0m");
        assert_eq!(
            Colours::ALL.error("error:"),
            "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m"
        );
    }
}
