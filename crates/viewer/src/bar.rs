//! One line on standard error that shows how far a command is. It is there on terminals alone, and gone before anything is
//! printed.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use muster_view::rows;

/// Steps, done and all, and the next one.
const COUNTED: &str = "[{bar:24}] {pos}/{len} {msg}";
/// What goes on, and for how long.
const ENDLESS: &str = "{spinner} {msg}, {elapsed}";
/// Between two pictures of what goes on.
const TICK: Duration = Duration::from_millis(150);

/// How far a command is; dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// One that shows nothing.
    #[must_use]
    pub fn none() -> Self {
        Self(ProgressBar::hidden())
    }

    /// So many steps.
    #[must_use]
    pub fn counting(steps: u64) -> Self {
        Self::on_terminal(COUNTED, Some(steps))
    }

    /// Something whose end nobody knows.
    #[must_use]
    pub fn waiting(what: &str) -> Self {
        let bar = Self::on_terminal(ENDLESS, None);
        bar.0.set_message(rows::clean(what));
        bar.0.enable_steady_tick(TICK);
        bar
    }

    /// So many steps are done, and this is the next one.
    pub fn at(&self, done: u64, what: &str) {
        if !self.0.is_hidden() {
            self.0.set_position(done);
            self.0.set_message(rows::clean(what));
        }
    }

    /// Does something that prints, with the line out of the way.
    pub fn aside(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    fn on_terminal(template: &str, steps: Option<u64>) -> Self {
        let term = std::env::var_os("TERM");
        let no_colour = std::env::var_os("NO_COLOR");
        if !is_wanted(io::stderr().is_terminal(), term.as_deref(), no_colour.as_deref()) {
            return Self::none();
        }
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::stderr());
        // Letters that every terminal has.
        bar.set_style(style.progress_chars("=> ").tick_chars("-\\|/ "));
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Whether a line may be drawn: who sets `NO_COLOR` wants text that stays as it is written.
fn is_wanted(terminal: bool, term: Option<&OsStr>, no_colour: Option<&OsStr>) -> bool {
    terminal && term.is_some_and(|term| term != "dumb") && no_colour.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_on_a_terminal_and_nowhere_else() {
        let xterm = Some(OsStr::new("xterm"));
        assert!(is_wanted(true, xterm, None) && is_wanted(true, xterm, Some(OsStr::new(""))));
        assert!(!is_wanted(false, xterm, None), "a pipe");
        assert!(!is_wanted(true, xterm, Some(OsStr::new("1"))), "NO_COLOR");
        assert!(!is_wanted(true, Some(OsStr::new("dumb")), None) && !is_wanted(true, None, None));
    }

    #[test]
    fn templates_are_ones_that_indicatif_reads() {
        for template in [COUNTED, ENDLESS] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
