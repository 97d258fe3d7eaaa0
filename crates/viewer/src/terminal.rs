//! The terminal of `muster top`: keys in, cells out. Whatever ends it, the terminal is as it was before.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;

use muster_view::Overview;
use muster_view::screen::{Key, Screen};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use termion::event::Key as Pressed;
use termion::input::TermRead as _;
use termion::raw::IntoRawMode as _;
use termion::screen::IntoAlternateScreen as _;

/// What happens while the screen is shown.
#[derive(Debug)]
pub enum Event {
    /// A newer state.
    Overview(Box<Overview>),
    /// The state could not be read: the old one stays, and the reason is shown.
    Trouble(String),
    /// A key.
    Key(Key),
    /// Look whether the terminal has another size.
    Tick,
    /// Nobody is there any more.
    End,
}

/// Shows `overview` and what comes after it, until somebody ends it.
///
/// Errors: those of the terminal.
pub fn run(mut overview: Overview, colour: bool, sender: &Sender<Event>, events: &Receiver<Event>) -> io::Result<()> {
    read_keys(sender.clone());
    let terminal = io::stdout().into_raw_mode()?.into_alternate_screen()?;
    // Both guards give the terminal back when they are dropped, on errors and panics too.
    let mut terminal = termion::cursor::HideCursor::from(terminal);
    let mut screen = Screen::new(colour);
    let mut painted = Buffer::empty(Rect::default());
    loop {
        let (width, height) = termion::terminal_size()?;
        let area = Rect::new(0, 0, width, height);
        if painted.area != area {
            painted = Buffer::empty(area);
            write!(terminal, "{}", termion::clear::All)?;
        }
        let mut next = Buffer::empty(area);
        screen.draw(&overview, area, &mut next);
        for (x, y, cell) in painted.diff(&next) {
            paint(&mut terminal, x, y, cell)?;
        }
        terminal.flush()?;
        painted = next;
        match events.recv() {
            Ok(Event::Overview(newer)) => {
                overview = *newer;
                screen.set_trouble(None);
            }
            Ok(Event::Trouble(why)) => screen.set_trouble(Some(why)),
            Ok(Event::Key(key)) => {
                if !screen.key(key, &overview) {
                    return Ok(());
                }
            }
            Ok(Event::Tick) => {}
            Ok(Event::End) | Err(_) => return Ok(()),
        }
    }
}

/// Reads keys until there are none; a second thread looks at the size of the terminal.
fn read_keys(sender: Sender<Event>) {
    let ticks = sender.clone();
    thread::spawn(move || {
        while ticks.send(Event::Tick).is_ok() {
            thread::sleep(TICK);
        }
    });
    thread::spawn(move || {
        for pressed in io::stdin().keys() {
            let event = match pressed {
                Ok(Pressed::Ctrl('c' | 'd')) | Err(_) => Event::End,
                Ok(pressed) => match key(pressed) {
                    Some(key) => Event::Key(key),
                    None => continue,
                },
            };
            if sender.send(event).is_err() {
                return;
            }
        }
        // The terminal was closed.
        let _ = sender.send(Event::End);
    });
}

/// How soon another size of the terminal is noticed.
const TICK: std::time::Duration = std::time::Duration::from_millis(250);

fn key(pressed: Pressed) -> Option<Key> {
    match pressed {
        Pressed::Char('\n') => Some(Key::Enter),
        Pressed::Char('\t') => Some(Key::Tab),
        Pressed::Char(letter) => Some(Key::Char(letter)),
        Pressed::Esc => Some(Key::Escape),
        Pressed::Backspace => Some(Key::Backspace),
        Pressed::Up => Some(Key::Up),
        Pressed::Down => Some(Key::Down),
        Pressed::Left => Some(Key::Left),
        Pressed::Right => Some(Key::Right),
        Pressed::PageUp => Some(Key::PageUp),
        Pressed::PageDown => Some(Key::PageDown),
        _ => None,
    }
}

/// One cell at its place, with its style.
fn paint(terminal: &mut impl Write, x: u16, y: u16, cell: &Cell) -> io::Result<()> {
    write!(terminal, "{}\u{1b}[0", termion::cursor::Goto(x.saturating_add(1), y.saturating_add(1)))?;
    let styles = [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)];
    for (modifier, code) in styles {
        if cell.modifier.contains(modifier) {
            write!(terminal, ";{code}")?;
        }
    }
    if let Color::Indexed(colour) = cell.fg {
        write!(terminal, ";38;5;{colour}")?;
    }
    write!(terminal, "m{}\u{1b}[0m", cell.symbol())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_painted_where_it_stands_and_leaves_no_style_behind() {
        let mut cell = Cell::new("A");
        cell.fg = Color::Indexed(214);
        cell.modifier = Modifier::REVERSED;
        let mut out = Vec::new();
        paint(&mut out, 2, 1, &cell).expect("a vector takes everything");
        assert_eq!(String::from_utf8(out).expect("text"), "\u{1b}[2;3H\u{1b}[0;7;38;5;214mA\u{1b}[0m");
    }
}
