//! The screen of `muster top`: what is shown for a state and an overview, and what a key does to the state. It knows no
//! terminal: whoever has one feeds it keys and paints the buffer.

use std::collections::BTreeSet;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use muster_core::model::moment::moment;

use crate::overview::{GangEntry, NodeEntry, NodeState, Overview};
use crate::plain;
use crate::rows;

/// A key, as far as the screen knows any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter.
    Char(char),
    /// Return.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Tab.
    Tab,
    /// Arrow.
    Up,
    /// Arrow.
    Down,
    /// Arrow.
    Left,
    /// Arrow.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
}

/// What is shown below the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pane {
    /// Zones, layers, nodes.
    Topology,
    /// Gangs.
    Gangs,
    /// NodeBatches.
    Batches,
    /// What fits now.
    Fits,
    /// NodePools.
    Pools,
}

impl Pane {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Topology, Self::Gangs, Self::Batches, Self::Fits, Self::Pools];

    fn title(self) -> &'static str {
        match self {
            Self::Topology => "Topology",
            Self::Gangs => "Gangs",
            Self::Batches => "Batches",
            Self::Fits => "Fits now",
            Self::Pools => "Pools",
        }
    }
}

/// By what gangs and batches are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// Gangs that wait first, batches newest first.
    Usual,
    Name,
    Age,
    Cost,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Usual => Self::Name,
            Self::Name => Self::Age,
            Self::Age => Self::Cost,
            Self::Cost => Self::Usual,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Usual => "default",
            Self::Name => "name",
            Self::Age => "age",
            Self::Cost => "$/h",
        }
    }
}

/// What somebody at the terminal has chosen.
#[derive(Clone, Debug)]
pub struct Screen {
    pane: Pane,
    cursor: usize,
    sort: Sort,
    filter: String,
    typing: bool,
    help: bool,
    /// Paths of domains that are folded, with their level.
    folded: BTreeSet<(usize, String)>,
    /// Lines about one object, and the first one shown.
    detail: Option<(Vec<String>, usize)>,
    colour: bool,
    /// What went wrong when the cluster was read last.
    trouble: Option<String>,
}

/// One line of a pane.
struct Row {
    text: String,
    style: Style,
    about: About,
}

/// What a line is about.
enum About {
    Domain(usize),
    Node(String),
    Gang(usize),
    Batch(usize),
    Text,
}

const HELP: [&str; 15] = [
    "1 to 5, Tab       another pane: topology, gangs, batches, what fits now, pools",
    "arrows, j and k   up and down; PgUp and PgDn by pages",
    "Enter             explain the gang, batch or node; fold or unfold a domain",
    "left and right    fold and unfold",
    "s                 sort by: default, name, age, $/h",
    "/                 filter: lines that contain the text; Enter keeps it, Escape drops it",
    "Escape            back",
    "?                 this help",
    "q, Ctrl-C         end",
    "",
    "Marks of nodes: letters = the gang that holds most of it, . = idle, ~ = partly used,",
    "# = in use by others, x = blocked, - = no accelerators.",
    "",
    "Stranded: paid for nodes that served no running gang.",
    "What fits now: gangs whose members take a whole node each, in one domain of the level.",
];

impl Default for Screen {
    fn default() -> Self {
        Self::new(true)
    }
}

impl Screen {
    /// The first screen; without colours where the terminal or `NO_COLOR` says so.
    #[must_use]
    pub fn new(colour: bool) -> Self {
        Self {
            pane: Pane::Topology,
            cursor: 0,
            sort: Sort::Usual,
            filter: String::new(),
            typing: false,
            help: false,
            folded: BTreeSet::new(),
            detail: None,
            colour,
            trouble: None,
        }
    }

    /// What went wrong when the cluster was read last; `None`: nothing.
    pub fn set_trouble(&mut self, trouble: Option<String>) {
        self.trouble = trouble;
    }

    /// Does what a key asks for; `false`: end.
    pub fn key(&mut self, key: Key, overview: &Overview) -> bool {
        if self.typing {
            self.typed(key);
            return true;
        }
        if self.help {
            self.help = false;
            return key != Key::Char('q');
        }
        if let Some((lines, first)) = &mut self.detail {
            match key {
                Key::Char('q') => return false,
                Key::Up | Key::Char('k') => *first = first.saturating_sub(1),
                Key::Down | Key::Char('j') => *first = (*first + 1).min(lines.len().saturating_sub(1)),
                Key::PageUp => *first = first.saturating_sub(PAGE),
                Key::PageDown => *first = (*first + PAGE).min(lines.len().saturating_sub(1)),
                Key::Escape | Key::Enter | Key::Left | Key::Backspace => self.detail = None,
                Key::Char(_) | Key::Tab | Key::Right => {}
            }
            return true;
        }
        let count = self.rows(overview).len();
        let (last, chosen) = (count.saturating_sub(1), self.chosen(count));
        match key {
            Key::Char('q') => return false,
            Key::Char('?') => self.help = true,
            Key::Char('/') => self.typing = true,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char(number @ '1'..='5') => {
                let index = number.to_digit(10).map_or(0, |digit| digit as usize - 1);
                self.turn(Pane::ALL.get(index).copied().unwrap_or(self.pane));
            }
            Key::Tab => {
                let index = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
                self.turn(Pane::ALL[(index + 1) % Pane::ALL.len()]);
            }
            Key::Up | Key::Char('k') => self.cursor = chosen.saturating_sub(1),
            Key::Down | Key::Char('j') => self.cursor = (chosen + 1).min(last),
            Key::PageUp => self.cursor = chosen.saturating_sub(PAGE),
            Key::PageDown => self.cursor = (chosen + PAGE).min(last),
            Key::Escape => self.filter.clear(),
            Key::Left | Key::Right | Key::Enter => self.open(key, overview),
            Key::Char(_) | Key::Backspace => {}
        }
        true
    }

    fn typed(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.filter.push(letter),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.typing = false,
            Key::Escape => {
                self.typing = false;
                self.filter.clear();
            }
            Key::Tab | Key::Up | Key::Down | Key::Left | Key::Right | Key::PageUp | Key::PageDown => {}
        }
        self.cursor = 0;
    }

    /// The row of so many that the cursor is on: a table's head never is.
    fn chosen(&self, count: usize) -> usize {
        let head = usize::from(self.pane != Pane::Topology);
        self.cursor.max(head).min(count.saturating_sub(1))
    }

    fn turn(&mut self, pane: Pane) {
        self.pane = pane;
        self.cursor = 0;
    }

    fn open(&mut self, key: Key, overview: &Overview) {
        let rows = self.rows(overview);
        let Some(row) = rows.get(self.chosen(rows.len())) else { return };
        match &row.about {
            About::Domain(index) => {
                let Some(domain) = overview.domains.get(*index) else { return };
                let place = (domain.level, domain.path.clone());
                let folded = self.folded.contains(&place);
                if folded && key != Key::Left {
                    self.folded.remove(&place);
                } else if !folded && key != Key::Right {
                    self.folded.insert(place);
                }
            }
            About::Node(name) if key == Key::Enter => {
                let node = overview.nodes.iter().find(|node| node.name == *name);
                self.detail = node.map(|node| (about_node(overview, node), 0));
            }
            About::Gang(index) if key == Key::Enter => {
                self.detail = overview.gangs.get(*index).map(|gang| (about_gang(gang), 0));
            }
            About::Batch(index) if key == Key::Enter => {
                self.detail = overview.batches.get(*index).map(|batch| {
                    let mut lines = vec![format!("NodeBatch {}", rows::clean(&batch.name))];
                    lines.extend(batch.owner.iter().map(|owner| format!("for {}", rows::clean(owner))));
                    lines.extend(batch.message.iter().map(|message| rows::clean(message)));
                    let (spent, stranded) = (rows::usd(batch.spent_usd_micro), rows::usd(batch.stranded_usd_micro));
                    lines.push(format!("{spent} spent, {stranded} of it stranded"));
                    lines.push(String::new());
                    lines.push("attempts:".to_owned());
                    lines.extend(batch.attempts.iter().map(rows::attempt));
                    (lines, 0)
                });
            }
            About::Node(_) | About::Gang(_) | About::Batch(_) | About::Text => {}
        }
    }

    fn shows(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// Lines of the pane, without its head.
    fn rows(&self, overview: &Overview) -> Vec<Row> {
        match self.pane {
            Pane::Topology => self.topology(overview),
            Pane::Gangs => {
                let mut order: Vec<usize> = (0..overview.gangs.len()).collect();
                let gang = |index: &usize| &overview.gangs[*index];
                match self.sort {
                    Sort::Usual => {}
                    Sort::Name => order.sort_by_key(|index| (gang(index).namespace.clone(), gang(index).name.clone())),
                    Sort::Age => order.sort_by_key(|index| std::cmp::Reverse(gang(index).age_seconds)),
                    Sort::Cost => order.sort_by_key(|index| std::cmp::Reverse(gang(index).usd_micro_per_hour)),
                }
                let lines = rows::columns(rows::GANG, order.iter().map(|index| rows::gang(gang(index))));
                let style = |index: usize| self.gang_style(overview, Some(index));
                self.listed(lines, order.into_iter().map(|index| (About::Gang(index), style(index))).collect())
            }
            Pane::Batches => {
                let mut order: Vec<usize> = (0..overview.batches.len()).collect();
                let batch = |index: &usize| &overview.batches[*index];
                match self.sort {
                    Sort::Usual => {}
                    Sort::Name => order.sort_by_key(|index| batch(index).name.clone()),
                    Sort::Age => order.sort_by_key(|index| std::cmp::Reverse(batch(index).age_seconds)),
                    Sort::Cost => order.sort_by_key(|index| std::cmp::Reverse(batch(index).usd_micro_per_hour)),
                }
                let lines = rows::columns(rows::BATCH, order.iter().map(|index| rows::batch(batch(index))));
                self.listed(lines, order.into_iter().map(|index| (About::Batch(index), Style::new())).collect())
            }
            Pane::Fits => self.text(rows::columns(rows::FIT, overview.fits.iter().map(rows::fit))),
            Pane::Pools => self.text(rows::columns(rows::POOL, overview.pools.iter().map(rows::pool))),
        }
    }

    fn text(&self, lines: Vec<String>) -> Vec<Row> {
        let about = lines.iter().skip(1).map(|_| (About::Text, Style::new())).collect();
        self.listed(lines, about)
    }

    /// The first line is the head, which is never filtered and never chosen.
    fn listed(&self, lines: Vec<String>, about: Vec<(About, Style)>) -> Vec<Row> {
        let mut lines = lines.into_iter();
        let head =
            lines.next().map(|text| Row { text, style: Style::new().add_modifier(Modifier::BOLD), about: About::Text });
        let rows = lines.zip(about).filter(|(text, _)| self.shows(text));
        head.into_iter().chain(rows.map(|(text, (about, style))| Row { text, style, about })).collect()
    }

    fn topology(&self, overview: &Overview) -> Vec<Row> {
        let mut found = Vec::new();
        let mut hidden_below: Option<usize> = None;
        for (index, domain) in overview.domains.iter().enumerate() {
            if hidden_below.is_some_and(|level| domain.level > level) {
                continue;
            }
            let folded = self.folded.contains(&(domain.level, domain.path.clone()));
            hidden_below = folded.then_some(domain.level);
            let indent = "  ".repeat(domain.level);
            let sign = if folded { '+' } else { '-' };
            let capacity = rows::capacity(domain.accelerators, domain.idle_nodes, domain.nodes);
            let text = format!("{indent}{sign} {}: {capacity}", rows::domain(overview, domain));
            let own: Vec<Row> = if folded {
                Vec::new()
            } else {
                overview.hosts(Some(index)).map(|node| self.node(overview, node, domain.level + 1)).collect()
            };
            let own: Vec<Row> = own.into_iter().filter(|row| self.shows(&row.text)).collect();
            if self.filter.is_empty() || self.shows(&text) || !own.is_empty() {
                found.push(Row { text, style: Style::new(), about: About::Domain(index) });
            }
            found.extend(own);
        }
        if overview.domains.is_empty() {
            let own = overview.hosts(None).map(|node| self.node(overview, node, 0));
            found.extend(own.filter(|row| self.shows(&row.text)));
        }
        found
    }

    fn node(&self, overview: &Overview, node: &NodeEntry, depth: usize) -> Row {
        let indent = "  ".repeat(depth);
        let mark = plain::mark(overview, node);
        let state = node.why.as_deref().unwrap_or(node.state.as_str());
        let gangs: Vec<String> = node
            .gangs
            .iter()
            .filter_map(|index| overview.gangs.get(*index))
            .map(|gang| rows::clean(&format!("{}/{}", gang.namespace, gang.name)))
            .collect();
        let of = if gangs.is_empty() { String::new() } else { format!(" by {}", gangs.join(", ")) };
        let accelerators = node.accelerators;
        let used = if accelerators.total > 0 {
            format!("{}/{} free, ", accelerators.free, accelerators.total)
        } else {
            String::new()
        };
        let kind = rows::clean(&node.instance_type);
        let text = format!("{indent}[{mark:^2}] {} {kind}: {used}{state}{of}", rows::clean(&node.name));
        Row { text, style: self.node_style(overview, node), about: About::Node(node.name.clone()) }
    }

    fn node_style(&self, overview: &Overview, node: &NodeEntry) -> Style {
        if let Some(gang) = node.gangs.first() {
            return self.gang_style(overview, Some(*gang));
        }
        match node.state {
            NodeState::Blocked => Style::new().add_modifier(Modifier::DIM),
            NodeState::Idle | NodeState::Partial | NodeState::Full | NodeState::Plain => Style::new(),
        }
    }

    fn gang_style(&self, overview: &Overview, index: Option<usize>) -> Style {
        let Some(index) = index.filter(|_| self.colour) else { return Style::new() };
        let waiting = overview.gangs.get(index).is_some_and(|gang| gang.waiting);
        let style = Style::new().fg(COLOURS[index % COLOURS.len()]);
        if waiting { style.add_modifier(Modifier::BOLD) } else { style }
    }

    /// Draws everything.
    pub fn draw(&self, overview: &Overview, area: Rect, buffer: &mut Buffer) {
        let width = usize::from(area.width);
        let mut put = |y: u16, text: &str, style: Style| {
            if y < area.height {
                buffer.set_stringn(area.x, area.y + y, text, width, style);
            }
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        for (y, line) in (0..).zip(rows::summary(overview)) {
            put(y, &rows::short(&line, width), bold);
        }
        let tabs: Vec<String> = (1..)
            .zip(Pane::ALL)
            .map(|(number, pane)| {
                if pane == self.pane {
                    format!("[{number} {}]", pane.title())
                } else {
                    format!(" {number} {} ", pane.title())
                }
            })
            .collect();
        put(2, &rows::short(&tabs.join(" "), width), Style::new());
        let body = usize::from(area.height.saturating_sub(4));
        let bottom = area.height.saturating_sub(1);
        put(bottom, &rows::short(&self.status(overview), width), Style::new().add_modifier(Modifier::REVERSED));
        let (lines, first, chosen) = self.body(overview, body, width);
        for (y, row) in (3..).zip(lines.iter().skip(first).take(body)) {
            let at = first + usize::from(y) - 3;
            let style = if Some(at) == chosen { row.style.add_modifier(Modifier::REVERSED) } else { row.style };
            put(y, &rows::short(&row.text, width), style);
        }
    }

    /// Lines, the first one shown, and the one that is chosen.
    fn body(&self, overview: &Overview, height: usize, width: usize) -> (Vec<Row>, usize, Option<usize>) {
        let plain = |text: String| Row { text, style: Style::new(), about: About::Text };
        if self.help {
            return (HELP.iter().map(|line| plain((*line).to_owned())).collect(), 0, None);
        }
        if let Some((lines, first)) = &self.detail {
            let wrapped: Vec<Row> = lines.iter().flat_map(|line| wrap(line, width)).map(plain).collect();
            let first = (*first).min(wrapped.len().saturating_sub(1));
            return (wrapped, first, None);
        }
        let rows = self.rows(overview);
        if rows.is_empty() {
            return (vec![plain("nothing to see here".to_owned())], 0, None);
        }
        let chosen = self.chosen(rows.len());
        let first = chosen.saturating_sub(height.saturating_sub(1));
        (rows, first, Some(chosen))
    }

    fn status(&self, overview: &Overview) -> String {
        if self.typing {
            return format!("/{}_", rows::clean(&self.filter));
        }
        let filter =
            if self.filter.is_empty() { String::new() } else { format!(" filter: {}", rows::clean(&self.filter)) };
        if let Some(trouble) = &self.trouble {
            return format!("not current, of {}: {}", moment(overview.now), rows::clean(trouble));
        }
        let excluded = rows::excluded(overview).map(|excluded| format!("  {excluded}")).unwrap_or_default();
        format!("? help  q end  / filter  s sort: {}{filter}  {}{excluded}", self.sort.word(), moment(overview.now))
    }
}

/// Lines of a page.
const PAGE: usize = 10;

/// Okabe and Ito's colours as far as a terminal of 256 colours has them; letters say the same.
const COLOURS: [Color; 7] = [
    Color::Indexed(214),
    Color::Indexed(74),
    Color::Indexed(36),
    Color::Indexed(227),
    Color::Indexed(32),
    Color::Indexed(166),
    Color::Indexed(175),
];

fn about_gang(gang: &GangEntry) -> Vec<String> {
    let mut lines = vec![format!(
        "gang {}/{} {}",
        rows::clean(&gang.namespace),
        rows::clean(&gang.name),
        rows::clean(&gang.headline)
    )];
    if !gang.remedies.is_empty() {
        lines.push(String::new());
        lines.extend(plain::remedies(gang));
    }
    lines.push(String::new());
    lines.push(format!("members: {} running of {}, {} needed", gang.running, gang.size, gang.minimum));
    lines.extend(gang.phase.iter().map(|phase| format!("phase: {}", rows::clean(phase))));
    lines.extend(gang.placement.iter().map(|placement| format!("topology: {}", rows::clean(placement))));
    lines.extend(gang.batch.iter().map(|batch| format!("NodeBatch: {}", rows::clean(batch))));
    if gang.spent_usd_micro > 0 {
        let (rate, spent) = (rows::usd(gang.usd_micro_per_hour), rows::usd(gang.spent_usd_micro));
        lines.push(format!("money: {rate}/h, {spent} spent, {} stranded", rows::usd(gang.stranded_usd_micro)));
    }
    if !gang.nodes.is_empty() {
        lines.push(format!("nodes: {}", rows::clean(&gang.nodes.join(", "))));
    }
    lines
}

fn about_node(overview: &Overview, node: &NodeEntry) -> Vec<String> {
    let state = node.why.as_deref().unwrap_or(node.state.as_str());
    let mut lines = vec![format!("node {}: {state}", rows::clean(&node.name))];
    lines.push(format!("type: {}", rows::clean(&node.instance_type)));
    lines.extend(node.pool.iter().map(|pool| format!("NodePool: {}", rows::clean(pool))));
    if let Some(accelerator) = &node.accelerator {
        let counted = node.accelerators;
        lines.push(format!("{accelerator}: {} used, {} free of {}", counted.used, counted.free, counted.total));
    }
    let path = node.domain.and_then(|domain| overview.domains.get(domain)).map(|domain| rows::clean(&domain.path));
    lines.extend(path.map(|path| format!("stands in: {path}")));
    for gang in node.gangs.iter().filter_map(|index| overview.gangs.get(*index)) {
        lines.push(rows::clean(&format!("gang {}/{} ({})", gang.namespace, gang.name, gang.letters)));
    }
    lines.push(format!("{} pods of no gang, those of DaemonSets excluded", node.other_pods));
    lines
}

/// Lines of at most `width` characters, broken at spaces where there are any.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word.to_owned();
        loop {
            let last = lines.last_mut().expect("there is always a line");
            let used = last.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.chars().count() <= width {
                last.push_str(if gap > 0 { " " } else { "" });
                last.push_str(&word);
                break;
            }
            if used > 0 {
                lines.push(String::new());
                continue;
            }
            let cut: String = word.chars().take(width).collect();
            word = word.chars().skip(width).collect();
            last.push_str(&cut);
            lines.push(String::new());
        }
    }
    lines
}
