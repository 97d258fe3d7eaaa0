//! Every pane of the screen at two sizes, drawn into the test terminal, and what keys do.

use muster_view::Overview;
use muster_view::screen::{Key, Screen};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::support::{agreed, dump, overview, tour};

fn drawn(screen: &Screen, overview: &Overview, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(overview, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| {
        let cells: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        format!("{}\n", cells.trim_end())
    };
    (0..height).map(line).collect()
}

fn after(keys: &[Key], overview: &Overview) -> Screen {
    let mut screen = Screen::new(false);
    for key in keys {
        assert!(screen.key(*key, overview), "{key:?} ended the screen");
    }
    screen
}

/// These panes, in both sizes, each in a file with this before its name.
fn are_agreed(prefix: &str, panes: &[(&str, &[Key])], overview: &Overview) {
    for size in [(80, 24), (200, 60)] {
        let mut shown = String::new();
        for (name, keys) in panes {
            let pane = drawn(&after(keys, overview), overview, size);
            shown.push_str(&["== ", name, "\n", &pane].concat());
        }
        agreed(&format!("tests/screens/{prefix}{}x{}.txt", size.0, size.1), &shown);
    }
}

#[test]
fn every_pane_at_80_by_24_and_200_by_60_is_what_was_agreed_on() {
    let overview = overview(&dump("refused"));
    let panes: [(&str, &[Key]); 9] = [
        ("topology", &[]),
        ("gangs", &[Key::Char('2')]),
        ("batches", &[Key::Char('3')]),
        ("fits", &[Key::Char('4')]),
        ("pools", &[Key::Char('5')]),
        ("help", &[Key::Char('?')]),
        ("gang explained", &[Key::Char('2'), Key::Enter]),
        ("folded", &[Key::Enter]),
        ("filtered", &[Key::Char('/'), Key::Char('b'), Key::Char('-'), Key::Enter]),
    ];
    are_agreed("", &panes, &overview);
}

#[test]
fn batches_pools_and_nodes_of_the_tour_are_what_was_agreed_on() {
    let overview = overview(&tour());
    assert!(!overview.batches.is_empty() && overview.pools.iter().any(|pool| pool.name.is_some()));
    let panes: [(&str, &[Key]); 4] = [
        ("batches", &[Key::Char('3')]),
        ("batch opened", &[Key::Char('3'), Key::Enter]),
        ("pools", &[Key::Char('5')]),
        ("node opened", &[Key::PageDown, Key::Enter]),
    ];
    are_agreed("tour-", &panes, &overview);
}

#[test]
fn the_head_of_a_table_is_never_chosen() {
    let overview = overview(&dump("owners"));
    let opened = |keys: &[Key]| drawn(&after(keys, &overview), &overview, (80, 24));
    let first = opened(&[Key::Char('2'), Key::Enter]);
    assert!(first.contains("gang "), "{first}");
    for keys in [[Key::Up, Key::Enter], [Key::PageUp, Key::Enter]] {
        assert_eq!(opened(&[[Key::Char('2'); 1].as_slice(), &keys].concat()), first);
    }
    assert_ne!(opened(&[Key::Char('2'), Key::Down, Key::Enter]), first);
}

#[test]
fn q_ends_and_escape_goes_back() {
    let overview = overview(&dump("refused"));
    let mut screen = after(&[Key::Char('2'), Key::Enter, Key::Escape], &overview);
    assert!(!drawn(&screen, &overview, (80, 24)).contains("each of these alone"));
    assert!(!screen.key(Key::Char('q'), &overview));
}

#[test]
fn a_screen_of_any_size_is_drawn_without_a_panic() {
    let overview = overview(&dump("buy"));
    for size in [(1, 1), (3, 2), (20, 5), (300, 100)] {
        drawn(&after(&[Key::Char('2'), Key::Enter], &overview), &overview, size);
    }
}

#[test]
fn what_went_wrong_last_is_shown_beside_the_old_state() {
    let overview = overview(&dump("refused"));
    let mut screen = Screen::new(false);
    screen.set_trouble(Some("connection refused".to_owned()));
    let shown = drawn(&screen, &overview, (80, 24));
    assert!(shown.contains("not current") && shown.contains("connection refused"), "{shown}");
}
