//! The page: server-rendered HTML and SVG, complete without any script. Everything foreign is text; whatever the map
//! shows, a table says too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use muster_core::model::moment::moment;

use crate::assets;
use crate::overview::{BatchEntry, GangEntry, NodeEntry, Overview};
use crate::palette::{self, Scheme};
use crate::rows;
use crate::would::{self, Asked, Fits};

/// What stands around the overview.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// What is shown: a cluster or the name of a recording.
    pub source: String,
    /// Seconds until the page asks again; `None`: never.
    pub refresh: Option<u64>,
    /// Whether somebody asked for a page that stays as it is; it links to the one that does not.
    pub still: bool,
    /// Where the style comes from: with `true` it stands in the page, for a file of its own. Such a page never asks again.
    pub alone: bool,
    /// Why what is shown is not current.
    pub trouble: Option<String>,
}

impl Frame {
    /// Seconds until a page in this frame asks again.
    fn polls(&self) -> Option<u64> {
        self.refresh.filter(|_| !self.still && !self.alone)
    }
}

/// Cells in a row of the map.
const ROW: usize = 24;
/// Width and height of a cell, with its gap.
const CELL: usize = 30;
/// Left of the cells.
const LABELS: usize = 180;
/// Letters of a label: the end of the domain's path.
const LETTERS: usize = 22;
/// Where a page asks for the [fragment](State::fragment).
pub const FRAGMENT: &str = "/main";

/// What a state changes in the page: rendered once, and sent within a page, or by itself to a page that is open.
#[derive(Clone, Debug)]
pub struct State {
    title: String,
    body: String,
    /// A form beside what changes: what somebody types stays.
    question: String,
    tag: String,
}

/// The whole page.
#[must_use]
pub fn html(overview: &Overview, frame: &Frame) -> String {
    State::new(overview, frame).page(frame)
}

impl State {
    /// Renders a state. Of the frame only what changes with it is looked at: source and trouble.
    #[must_use]
    pub fn new(overview: &Overview, frame: &Frame) -> Self {
        let all = &overview.summary;
        let title = format!("Muster: {} waiting, {} accelerators free", all.waiting, all.accelerators.free);
        let body = html! {
            p { (rows::clean(&frame.source)) " at " time { (moment(overview.now)) } }
            @if let Some(trouble) = &frame.trouble { p .trouble role="alert" { "Not current: " (rows::clean(trouble)) } }
            @if let Some(excluded) = rows::excluded(overview) { p .trouble { (excluded) } }
            // The one line that is read out when it changes: it has no age and no dollars, which change at every look.
            p .summary role="status" { (waiting(overview)) }
            @for line in rows::summary(overview) { p { (line) } }
            (section("map", &map(overview)))
            (section("gangs", &gangs(overview)))
            (section("fits", &fits(overview)))
            (section("batches", &batches(overview)))
            (section("pools", &pools(overview)))
            (section("money", &money(overview)))
        };
        let body = body.into_string();
        // The title has nothing that the body lacks.
        let tag = format!("\"{}\"", assets::digest(&body));
        let question = question(overview, None).into_string();
        Self { title, body, question, tag }
    }

    /// The version of the state, as the header `ETag` has it.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The page that shows it.
    #[must_use]
    pub fn page(&self, frame: &Frame) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    @if frame.alone {
                        style { (PreEscaped(style())) }
                    } @else {
                        link rel="icon" type="image/svg+xml" href="/icon.svg";
                        link rel="stylesheet" href="/style.css";
                    }
                    @if let Some(seconds) = frame.polls() {
                        noscript { meta http-equiv="refresh" content=(seconds); }
                        meta name="htmx-config" content=(assets::HTMX_CONFIG);
                        script src=(assets::htmx_path()) defer {}
                        script src=(assets::script_path()) defer {}
                    }
                }
                body {
                    a .skip href="#gangs" { "Skip to gangs" }
                    header {
                        h1 { "Muster" }
                        @if frame.polls().is_some() {
                            p { "This page refreshes itself. " a href="/?still" { "Stop refreshing" } }
                        } @else if frame.still && frame.refresh.is_some() {
                            p { "This page stays as it is. " a href="/" { "Refresh again" } }
                        }
                        nav aria-label="Sections" {
                            @for (id, title) in SECTIONS { a href={ "#" (id) } { (title) } " " }
                        }
                        @if frame.polls().is_some() { p #stalled .trouble role="alert" hidden {} }
                    }
                    (self.main(frame))
                    @if !frame.alone { (PreEscaped(&self.question)) }
                    footer { p { "The same as data: " @if frame.alone { code { "muster top -o json" } } @else { a href="/overview.json" { "overview.json" } } } }
                }
            }
        };
        page.into_string()
    }

    /// The part of the page that changes, for a page that is open.
    #[must_use]
    pub fn fragment(&self, frame: &Frame) -> String {
        html! { title { (self.title) } (self.main(frame)) }.into_string()
    }

    /// The tag goes along with the next question, and an unchanged state is not sent twice.
    fn main(&self, frame: &Frame) -> Markup {
        let polls = frame.polls();
        let known = serde_json::json!({ "If-None-Match": self.tag }).to_string();
        html! {
            main #state
                hx-get=[polls.map(|_| FRAGMENT)]
                hx-trigger=[polls.map(|seconds| format!("every {seconds}s"))]
                hx-swap=[polls.map(|_| "outerMorph")]
                hx-headers=[polls.map(|_| known)]
                { (PreEscaped(&self.body)) }
        }
    }
}

/// What a person who looks away wants to hear about.
fn waiting(overview: &Overview) -> String {
    match (overview.summary.waiting, overview.summary.gangs) {
        (_, 0) => "There is no gang.".to_owned(),
        (0, _) => "No gang waits.".to_owned(),
        (1, gangs) => format!("1 gang of {gangs} waits."),
        (waiting, gangs) => format!("{waiting} gangs of {gangs} wait."),
    }
}

const SECTIONS: [(&str, &str); 6] = [
    ("map", "Topology"),
    ("gangs", "Gangs"),
    ("fits", "Fits now"),
    ("batches", "NodeBatches"),
    ("pools", "Pools"),
    ("money", "Money"),
];

fn section(id: &str, body: &Markup) -> Markup {
    let title = SECTIONS.iter().find(|(known, _)| *known == id).map_or("", |(_, title)| title);
    html! { section id=(id) aria-labelledby={ (id) "-title" } { h2 id={ (id) "-title" } { (title) } (body) } }
}

/// One row of cells for each domain that nodes stand right below.
fn map(overview: &Overview) -> Markup {
    let mut groups: Vec<(String, Vec<&NodeEntry>)> = Vec::new();
    for (index, domain) in overview.domains.iter().enumerate() {
        let nodes: Vec<&NodeEntry> = overview.hosts(Some(index)).collect();
        if !nodes.is_empty() {
            let path = if domain.path.is_empty() { "no labels".to_owned() } else { rows::clean(&domain.path) };
            groups.push((path, nodes));
        }
    }
    let unplaced: Vec<&NodeEntry> = overview.hosts(None).collect();
    if !unplaced.is_empty() {
        groups.push(("cluster".to_owned(), unplaced));
    }
    if groups.is_empty() {
        return html! { p { "There is no node." } };
    }
    let lines: usize = groups.iter().map(|(_, nodes)| nodes.len().div_ceil(ROW)).sum();
    let widest = groups.iter().map(|(_, nodes)| nodes.len().min(ROW)).max().unwrap_or(1);
    let (width, height) = (LABELS + widest * CELL, lines * CELL);
    let mut line = 0;
    let mut drawn: Vec<Markup> = Vec::new();
    for (path, nodes) in &groups {
        let top = line * CELL;
        drawn.push(html! { text .label x="0" y=(top + 19) { title { (path) } (tail(path, LETTERS)) } });
        for (index, node) in nodes.iter().enumerate() {
            let (x, y) = (LABELS + index % ROW * CELL, (line + index / ROW) * CELL);
            drawn.push(cell(overview, node, x, y));
        }
        line += nodes.len().div_ceil(ROW);
    }
    html! {
        p .muted { "One cell a node, one row a domain. Letters are gangs; . idle, ~ partly used, # in use by others, x blocked, - no accelerators." }
        div .scroll tabindex="0" role="region" aria-label="Topology map" {
            svg viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img" aria-label="Topology map; the table below says the same" {
                @for part in &drawn { (part) }
            }
        }
        details #map-table {
            summary { "The map as a table" }
            (objects("node", "nodes", &["Node", "Domain", "Type", "State", "Free", "Gangs"], overview.nodes.iter().map(|node| {
                let path = node.domain.and_then(|index| overview.domains.get(index)).map(|domain| domain.path.clone());
                vec![
                    node.name.clone(),
                    path.unwrap_or_default(),
                    node.instance_type.clone(),
                    node.why.clone().unwrap_or_else(|| node.state.as_str().to_owned()),
                    format!("{}/{}", node.accelerators.free, node.accelerators.total),
                    holders(overview, node).join(", "),
                ]
            })))
        }
    }
}

/// The end of a path, which tells it from its neighbours.
fn tail(path: &str, most: usize) -> String {
    let letters = path.chars().count();
    if letters <= most {
        path.to_owned()
    } else {
        format!("…{}", path.chars().skip(letters - most + 1).collect::<String>())
    }
}

fn holders(overview: &Overview, node: &NodeEntry) -> Vec<String> {
    let gangs = node.gangs.iter().filter_map(|index| overview.gangs.get(*index));
    gangs.map(|gang| format!("{} {}/{}", gang.letters, gang.namespace, gang.name)).collect()
}

fn cell(overview: &Overview, node: &NodeEntry, x: usize, y: usize) -> Markup {
    let mark = crate::plain::mark(overview, node);
    let colour = node.gangs.first().map_or_else(String::new, |gang| format!("gang-{}", gang % palette::GANGS.len()));
    let state = node.why.as_deref().unwrap_or(node.state.as_str());
    let holders = holders(overview, node);
    let by = if holders.is_empty() { String::new() } else { format!(", {}", holders.join(", ")) };
    let free = format!("{}/{} free", node.accelerators.free, node.accelerators.total);
    html! {
        g .node .(colour) {
            title { (rows::clean(&format!("{}: {state}, {free}{by}", node.name))) }
            // Closed: SVG has no void elements, and what followed would be inside.
            rect x=(x + 1) y=(y + 1) width=(CELL - 4) height=(CELL - 4) rx="3" {}
            text x=(x + 14) y=(y + 19) text-anchor="middle" { (mark) }
        }
    }
}

/// `name` tells it from the other tables of the page.
fn table(name: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Markup {
    rows_of(name, head, rows.map(|row| (None, row)))
}

/// [`table`] of objects with their name in the first cell: each row has a URL.
fn objects(kind: &str, name: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Markup {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let rows = rows.map(|row| {
        let first = anchor(kind, row.first().map_or("", String::as_str), 0);
        let before = seen.entry(first.clone()).or_default();
        let id = if *before == 0 { first } else { format!("{first}-{before}") };
        *before += 1;
        (Some(id), row)
    });
    rows_of(name, head, rows)
}

fn rows_of(name: &str, head: &[&str], rows: impl Iterator<Item = (Option<String>, Vec<String>)>) -> Markup {
    html! {
        div .scroll tabindex="0" role="region" aria-label={ "Table: " (rows::clean(name)) } {
            table {
                thead { tr { @for cell in head { th scope="col" { (cell) } } } }
                tbody { @for (id, row) in rows { tr id=[id] { @for cell in row { td { (rows::clean(&cell)) } } } } }
            }
        }
    }
}

/// The part of a URL that names an object: letters, digits and `-` of its name, and a number that tells equal ones apart.
fn anchor(kind: &str, name: &str, index: usize) -> String {
    let safe: String =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).take(80).collect();
    if index == 0 { format!("{kind}-{safe}") } else { format!("{kind}-{safe}-{index}") }
}

fn gang_anchor(overview: &Overview, index: usize) -> String {
    let name = |gang: &GangEntry| format!("{}-{}", gang.namespace, gang.name);
    let Some(gang) = overview.gangs.get(index) else { return String::new() };
    let before = overview.gangs.iter().take(index).filter(|other| name(other) == name(gang)).count();
    anchor("gang", &name(gang), before)
}

fn gangs(overview: &Overview) -> Markup {
    if overview.gangs.is_empty() {
        return html! { p { "There is no gang." } };
    }
    html! {
        @for (index, gang) in overview.gangs.iter().enumerate() {
            article id=(gang_anchor(overview, index)) .waiting[gang.waiting] {
                h3 {
                    span .{ "badge gang-" (index % palette::GANGS.len()) } { (gang.letters) } " "
                    a href={ "#" (gang_anchor(overview, index)) } { (rows::clean(&gang.namespace)) "/" (rows::clean(&gang.name)) }
                }
                p { strong { (rows::clean(&gang.headline)) } }
                @for (heading, first, group) in gang.remedy_groups() {
                    p { (capital(heading)) ":" }
                    ol start=(first) { @for remedy in group {
                        li { (rows::clean(&remedy.text)) ". " span .muted { "[" (remedy.codes.join(", ")) "]" } }
                    } }
                }
                p .muted { (about(gang)) }
            }
        }
    }
}

/// A text as the begin of a sentence.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn about(gang: &GangEntry) -> String {
    let mut parts = vec![format!("{} of {} members run, {} needed", gang.running, gang.size, gang.minimum)];
    parts.extend(gang.phase.iter().map(|phase| format!("phase {phase}")));
    parts.extend(gang.age_seconds.map(|age| format!("age {}", rows::age(Some(age)))));
    parts.extend(gang.placement.iter().map(|placement| format!("topology {placement}")));
    parts.extend(gang.batch.iter().map(|batch| format!("NodeBatch {batch}")));
    if gang.spent_usd_micro > 0 || gang.usd_micro_per_hour > 0 {
        let (rate, spent) = (rows::usd(gang.usd_micro_per_hour), rows::usd(gang.spent_usd_micro));
        parts.push(format!("{rate}/h, {spent} spent, {} stranded", rows::usd(gang.stranded_usd_micro)));
    }
    rows::clean(&parts.join(" · "))
}

fn fits(overview: &Overview) -> Markup {
    if overview.fits.is_empty() {
        return html! { p { "No node has accelerators." } };
    }
    let fragments = |fit: &crate::overview::FitEntry| {
        let all: Vec<String> = fit.fragments.iter().map(|one| format!("{} with {}", one.domains, one.nodes)).collect();
        if all.is_empty() { "-".to_owned() } else { all.join(", ") }
    };
    html! {
        p .muted { "Gangs whose members take a whole node each, in one domain of the level. 2×4 means: two gangs of four nodes at once." }
        (table("what fits now", &["Members of", "In one", "Largest gang", "Gangs at once", "Where", "Domains with idle nodes"], overview.fits.iter().map(|fit| {
            let mut row = rows::fit(fit).to_vec();
            row.push(fragments(fit));
            row
        })))
    }
}

/// The question "would n nodes of type t fit?", which works without scripts.
fn question(overview: &Overview, asked: Option<&Asked>) -> Markup {
    let types = would::types(overview);
    let is_asked = |name: &str| asked.is_some_and(|asked| asked.instance_type == name);
    html! {
        form action=(would::PATH) method="get" aria-label="Would it fit" {
            label for="fit-nodes" { "Would " }
            input #fit-nodes type="number" name="nodes" min="1" required value=(asked.map_or(8, |asked| asked.nodes));
            label for="fit-type" { " nodes of " }
            @if types.is_empty() {
                // The form stays as it is on an open page, and nodes may come.
                input #fit-type name="type" required placeholder="p5.48xlarge" value=[asked.map(|asked| &asked.instance_type)];
            } @else {
                select #fit-type name="type" {
                    @for name in types { option value=(name) selected[is_asked(name)] { (rows::clean(name)) } }
                }
            }
            " fit now? " button type="submit" { "Ask" }
        }
    }
}

/// The page that answers the question.
#[must_use]
pub fn fit(overview: &Overview, asked: &Asked, fits: &Fits) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Muster: what fits now" }
                link rel="icon" type="image/svg+xml" href="/icon.svg";
                link rel="stylesheet" href="/style.css";
            }
            body {
                header { h1 { "What fits now" } }
                main {
                    p .summary role="status" { (rows::clean(&would::sentence(asked, fits))) }
                    p .muted { "At " time { (overview.now.strftime("%Y-%m-%dT%H:%M:%SZ")) } ": whole idle nodes as the map shows them, one member a node." }
                    (question(overview, Some(asked)))
                    p { a href="/#fits" { "Back to the cluster" } }
                }
            }
        }
    };
    page.into_string()
}

fn batches(overview: &Overview) -> Markup {
    if overview.batches.is_empty() {
        return html! { p { "There is no NodeBatch." } };
    }
    html! {
        @for batch in &overview.batches { (of_batch(batch)) }
    }
}

fn of_batch(batch: &BatchEntry) -> Markup {
    let id = anchor("batch", &batch.name, 0);
    let what: Vec<&str> = [&batch.instance_type, &batch.capacity_type, &batch.zone]
        .into_iter()
        .filter_map(|part| part.as_deref())
        .collect();
    html! {
        article id=(id) {
            h3 { a href={ "#" (id) } { (rows::clean(&batch.name)) } " " span .muted { (rows::clean(&batch.phase)) } }
            p { (batch.ready) " of " (batch.count) " nodes ready"
                @if !what.is_empty() { ", " (rows::clean(&what.join(", "))) }
                @if let Some(owner) = &batch.owner { ", for " (rows::clean(owner)) } }
            @if let Some(message) = &batch.message { p { (rows::clean(message)) } }
            p .muted { (rows::usd(batch.usd_micro_per_hour)) "/h, " (rows::usd(batch.spent_usd_micro)) " spent, " (rows::usd(batch.stranded_usd_micro)) " stranded" }
            @if !batch.attempts.is_empty() {
                (table(&format!("attempts of {}", batch.name), &["Attempt", "Nodes", "Type", "Capacity type", "Zone", "Outcome", "What EC2 reported"], batch.attempts.iter().map(|attempt| {
                    let reported: Vec<&str> = [&attempt.code, &attempt.message].into_iter().filter_map(|part| part.as_deref()).collect();
                    vec![
                        attempt.number.to_string(),
                        attempt.count.to_string(),
                        attempt.instance_type.clone(),
                        attempt.capacity_type.clone(),
                        attempt.zone.clone(),
                        attempt.outcome.clone(),
                        reported.join(": "),
                    ]
                })))
            }
        }
    }
}

fn pools(overview: &Overview) -> Markup {
    objects(
        "pool",
        "pools",
        &["Pool", "Ready", "Nodes", "Accelerators", "$/h", "Limits", "Members of gangs", "Other pods"],
        overview.pools.iter().map(|pool| {
            let mut row = rows::pool(pool).to_vec();
            row.extend([pool.gang_members.to_string(), pool.other_pods.to_string()]);
            row
        }),
    )
}

fn money(overview: &Overview) -> Markup {
    let mut spaces: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for gang in &overview.gangs {
        let of = spaces.entry(&gang.namespace).or_default();
        of.0 = of.0.saturating_add(gang.usd_micro_per_hour);
        of.1 = of.1.saturating_add(gang.spent_usd_micro);
        of.2 = of.2.saturating_add(gang.stranded_usd_micro);
    }
    // What belongs to no gang that is there: nodes of other pods, and of gangs that are gone.
    let there: BTreeSet<String> =
        overview.gangs.iter().map(|gang| format!("{}/{}", gang.namespace, gang.object)).collect();
    for batch in &overview.batches {
        if batch.owner.as_ref().is_some_and(|owner| there.contains(owner)) {
            continue;
        }
        let namespace = batch.owner.as_deref().and_then(|owner| owner.split('/').next());
        let of = spaces.entry(namespace.unwrap_or("no gang")).or_default();
        of.0 = of.0.saturating_add(batch.usd_micro_per_hour);
        of.1 = of.1.saturating_add(batch.spent_usd_micro);
        of.2 = of.2.saturating_add(batch.stranded_usd_micro);
    }
    html! {
        p .muted { "Stranded: paid for nodes that served no running gang." }
        @if spaces.is_empty() {
            p { "Nothing was provisioned for anybody who is there." }
        } @else {
            (table("dollars by namespace", &["Namespace", "$/h", "Spent", "Stranded"], spaces.into_iter().map(|(name, (rate, spent, stranded))| {
                vec![name.to_owned(), rows::usd(rate), rows::usd(spent), rows::usd(stranded)]
            })))
        }
        @if !overview.spent.is_empty() {
            h3 { "Spent so far" }
            p .muted { "Since each NodePool was created, for gangs and NodeBatches that are gone too. Namespace - is that of pods of no gang." }
            (table("spent so far", &["Namespace", "Pool", "Capacity type", "Spent", "Stranded"], overview.spent.iter().map(|row| {
                let (spent, stranded) = (rows::usd(row.spent_usd_micro), rows::usd(row.stranded_usd_micro));
                vec![row.namespace.clone(), row.node_pool.clone(), row.capacity_type.clone(), spent, stranded]
            })))
        }
        @if !overview.prices.is_empty() {
            h3 { "Prices" }
            (table("prices", &["Type", "Capacity type", "Zone", "$/h", "Source", "Age"], overview.prices.iter().map(|price| {
                let zone = price.zone.clone().unwrap_or_else(|| "all".to_owned());
                let (kind, capacity) = (price.instance_type.clone(), price.capacity_type.clone());
                let old = price.as_of.map(|day| overview.now.duration_since(day).as_secs().max(0));
                vec![kind, capacity, zone, rows::usd(price.usd_micro_per_hour), price.source.clone(), rows::age(old)]
            })))
        }
    }
}

/// The style: no foreign font, no image, no animation.
#[must_use]
pub fn style() -> String {
    let mut css = String::from(
        "*{box-sizing:border-box}body{margin:0 auto;max-width:110rem;padding:1rem;font:1rem/1.5 system-ui,sans-serif;\
         background:var(--background);color:var(--text);overflow-wrap:anywhere}a{color:var(--link)}\
         a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:3px solid var(--link);outline-offset:2px}\
         h1,h2,h3{line-height:1.2;margin:1.5rem 0 .5rem}h1,article h3{margin-top:.5rem}form,footer{margin-top:1.5rem}p{margin:.25rem 0}.muted{color:var(--muted)}.summary{font-weight:600}\
         nav{margin:.5rem 0}nav a{margin-right:.75rem}.skip{position:absolute;left:-99rem}.skip:focus{left:1rem}\
         article{border-left:4px solid var(--line);padding:.1rem 1rem;margin:1rem 0}article.waiting{border-left-style:double}\
         .trouble{border:2px solid var(--line);padding:.5rem;font-weight:600}.scroll{overflow-x:auto}\
         table{border-collapse:collapse;overflow-wrap:break-word}th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);\
         vertical-align:top;unicode-bidi:isolate;min-width:4rem;max-width:60rem}summary{cursor:pointer}\
         .badge{display:inline-block;min-width:1.6rem;padding:0 .3rem;text-align:center;border:1px solid var(--line);border-radius:3px}\
         svg text{font:600 14px ui-monospace,monospace;fill:var(--text)}svg text.label{font-weight:400;font-size:13px}\
         svg rect{fill:var(--cell);stroke:var(--line);stroke-width:1.5}\n",
    );
    for (index, (fill, letters)) in palette::GANGS.into_iter().enumerate() {
        let (fill, letters) = (palette::css(fill), palette::css(letters));
        let _ = writeln!(
            css,
            ".badge.gang-{index}{{background:{fill};color:{letters}}}svg .gang-{index} rect{{fill:{fill}}}\
             svg .gang-{index} text{{fill:{letters}}}"
        );
    }
    let _ = writeln!(css, ":root{{color-scheme:light dark;{}}}", variables(&palette::LIGHT));
    let _ = writeln!(css, "@media (prefers-color-scheme:dark){{:root{{{}}}}}", variables(&palette::DARK));
    css
}

fn variables(scheme: &Scheme) -> String {
    let Scheme { background, text, muted, link, line, cell } = *scheme;
    let all =
        [("background", background), ("text", text), ("muted", muted), ("link", link), ("line", line), ("cell", cell)];
    all.into_iter().map(|(name, colour)| format!("--{name}:{};", palette::css(colour))).collect()
}
