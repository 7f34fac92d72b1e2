//! What `duetime top` shows, and what its keys do. In the words of the console; asks nobody.

mod lines;
mod names;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use duetime_client::{Forecast, NodeView, Rates, SinkIssue, Topic, TopicRates};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, TableState};

use self::lines::{COLUMNS, GOES_TO, TEXTS, TopicLine, line, millis, rate, seconds};
use super::{output, pause};

/// A node that answers later than this is slow, as in the console.
const SLOW_AFTER: Duration = Duration::from_secs(2);
/// Which columns a narrow terminal shows: the first of these that fit, beside the one that is sorted by.
const WANTED_FIRST: [usize; 14] = [0, 2, 1, 3, 4, 5, 8, 9, 7, 6, 11, 12, 10, 13];
/// As many of these stay however long the names are: how a topic is.
const BESIDE_NAMES: usize = 5;
/// Sinks that are down, and topics that are paused, of which it is said below a table.
const NOTES_SHOWN: usize = 3;
/// The column from which the keys go on to sort by others: the oldest due message on top.
const OLDEST: usize = 1;
/// Width of the longest bar of a forecast.
const BAR_CHARS: u64 = 40;

/// What was asked for last.
#[derive(Debug, Default)]
pub struct Look {
    /// Milliseconds since the Unix epoch.
    pub at: i64,
    pub topics: Vec<Topic>,
    pub nodes: Vec<NodeView>,
    pub rates: Option<Rates>,
    /// Of the topic whose forecast is shown.
    pub forecast: Option<Forecast>,
}

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    Topics,
    Nodes,
    Sinks,
    Topic(String),
    Forecast(String),
    Help,
}

/// What a key asks of who runs the screen.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    /// Something that is not known yet is to be shown.
    Look,
    Quit,
}

/// What `duetime top` shows, and what its keys do.
#[derive(Debug)]
pub struct Screen {
    pub page: Page,
    pub look: Look,
    /// Why the last look failed.
    pub issue: Option<String>,
    /// How long the answer to the present look was waited for so far, and, without one, to the last.
    pub waited: Duration,
    node: String,
    /// A column was asked for; else what is worst comes first.
    is_sorted: bool,
    column: usize,
    down: bool,
    filter: String,
    typing: bool,
    chosen: usize,
}

/// A text in lines of so many characters, cut between words where that is possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + rest.len() > width {
            lines.push(String::new());
        } else if last > 0 {
            lines.last_mut().expect("there is one").push(' ');
        }
        while rest.len() > width {
            let after = rest.split_off(width);
            *lines.last_mut().expect("there is one") += &rest.into_iter().collect::<String>();
            lines.push(String::new());
            rest = after;
        }
        *lines.last_mut().expect("there is one") += &rest.into_iter().collect::<String>();
    }
    lines
}

impl Screen {
    /// Before the first look is shown.
    pub fn new(node: String, look: Look) -> Self {
        Self {
            page: Page::Topics,
            look,
            issue: None,
            waited: Duration::ZERO,
            node,
            is_sorted: false,
            column: OLDEST,
            down: true,
            filter: String::new(),
            typing: false,
            chosen: 0,
        }
    }

    fn rates_of(&self) -> BTreeMap<&str, &TopicRates> {
        let rates = self.look.rates.iter().flat_map(|rates| &rates.topics);
        rates.map(|rates| (rates.topic.as_str(), rates)).collect()
    }

    /// The topics that match the filter, in order.
    pub fn lines(&self) -> Vec<TopicLine> {
        let rates = self.rates_of();
        let wanted = self.look.topics.iter().filter(|topic| topic.name.contains(&self.filter));
        let mut lines: Vec<_> =
            wanted.map(|topic| line(topic, rates.get(topic.name.as_str()).copied(), self.look.at)).collect();
        let order = |a: &TopicLine, b: &TopicLine| {
            if !self.is_sorted {
                return b.severity.cmp(&a.severity).then_with(|| a.name.cmp(&b.name));
            }
            let column = self.column;
            let by = a.keys[column].partial_cmp(&b.keys[column]).unwrap_or(Ordering::Equal);
            let by = if TEXTS.contains(&column) { a.cells[column].cmp(&b.cells[column]) } else { by };
            if self.down { by.reverse() } else { by }.then_with(|| a.name.cmp(&b.name))
        };
        lines.sort_by(order);
        lines
    }

    /// What a key does.
    pub fn press(&mut self, key: KeyEvent) -> Asked {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Asked::Quit,
            KeyCode::Enter | KeyCode::Esc if self.typing => {
                self.typing = false;
                if key.code == KeyCode::Esc {
                    self.filter.clear();
                }
            }
            KeyCode::Backspace if self.typing => drop(self.filter.pop()),
            KeyCode::Char(c) if self.typing => self.filter.push(c),
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Esc => {
                self.page = Page::Topics;
                self.filter.clear();
            }
            KeyCode::Char('/') => (self.page, self.typing) = (Page::Topics, true),
            KeyCode::Char('t') => self.page = Page::Topics,
            KeyCode::Char('n') => self.page = Page::Nodes,
            KeyCode::Char('k') => self.page = Page::Sinks,
            KeyCode::Char('?') => self.page = Page::Help,
            KeyCode::Char('s') | KeyCode::Right => self.sort(1),
            KeyCode::Char('S') | KeyCode::Left => self.sort(COLUMNS.len() - 1),
            KeyCode::Char('r') => (self.is_sorted, self.down) = (true, !self.down),
            KeyCode::Down => self.chosen = (self.chosen + 1).min(self.lines().len().saturating_sub(1)),
            KeyCode::Up => self.chosen = self.chosen_of(self.lines().len()).saturating_sub(1),
            KeyCode::Enter => self.open(Page::Topic),
            KeyCode::Char('f') => {
                self.open(Page::Forecast);
                self.look.forecast = None;
                return Asked::Look;
            }
            _ => {}
        }
        Asked::Nothing
    }

    /// By the column that is so many further.
    fn sort(&mut self, further: usize) {
        (self.is_sorted, self.column) = (true, (self.column + further) % COLUMNS.len());
    }

    /// Which of so many lines is chosen: there may be fewer than when it was.
    fn chosen_of(&self, lines: usize) -> usize {
        self.chosen.min(lines.saturating_sub(1))
    }

    /// The page of the topic that is chosen, or shown already.
    fn open(&mut self, page: impl Fn(String) -> Page) {
        let name = match &self.page {
            Page::Topic(name) | Page::Forecast(name) => Some(name.clone()),
            _ => {
                let lines = self.lines();
                lines.get(self.chosen_of(lines.len())).map(|line| line.name.clone())
            }
        };
        if let Some(name) = name {
            self.page = page(name);
        }
    }

    /// Whose rates are missing in those that are shown.
    fn absent(&self) -> String {
        let all = self.look.rates.iter().filter_map(|rates| rates.nodes.as_ref()).flatten();
        let absent: Vec<&str> = all.filter(|node| !node.answered).map(|node| node.name.as_str()).collect();
        if absent.is_empty() { String::new() } else { format!(", without the rates of {}", absent.join(", ")) }
    }

    /// Draws all of it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let state = match &self.issue {
            Some(issue) => issue.clone(),
            None if self.waited > SLOW_AFTER => {
                let waited = seconds(Some(self.waited.as_secs_f64()));
                format!("slow, {waited} without an answer; this is from {}", output::second(self.look.at / 1000 * 1000))
            }
            None => output::second(self.look.at / 1000 * 1000) + &self.absent(),
        };
        let keys = if self.typing {
            format!(" only topics with: {}▏ Enter keeps it, Esc forgets it ", self.filter)
        } else {
            " t topics n nodes k sinks Enter topic f forecast / filter s sort ? help q quit ".to_owned()
        };
        let block = Block::bordered()
            .title(format!(" duetime top · {} · {state} ", self.node))
            .title_bottom(Line::from(keys).alignment(Alignment::Left));
        let inside = block.inner(frame.area());
        frame.render_widget(block, frame.area());
        let notes = if matches!(self.page, Page::Topics | Page::Sinks) { self.notes(inside.width) } else { Vec::new() };
        let below = Constraint::Length(u16::try_from(notes.len()).unwrap_or(u16::MAX));
        let [inside, below] = Layout::vertical([Constraint::Min(3), below]).areas(inside);
        frame.render_widget(Paragraph::new(notes), below);
        match &self.page {
            Page::Topics => self.draw_topics(frame, inside),
            Page::Nodes => frame.render_widget(self.nodes(), inside),
            Page::Sinks => frame.render_widget(self.sinks(), inside),
            Page::Help => frame.render_widget(Paragraph::new(include_str!("top_screen/help.txt")), inside),
            Page::Topic(name) => frame.render_widget(Paragraph::new(self.one(name)), inside),
            Page::Forecast(name) => frame.render_widget(Paragraph::new(self.forecast(name)), inside),
        }
    }

    /// The columns that fit into so many characters, in their order, and the width of the names, of which the longest
    /// needs so many.
    fn fitting(&self, width: u16, needed: u16) -> (Vec<usize>, u16) {
        let beside = |columns: &[usize]| {
            let others = columns.iter().filter(|at| **at != 0).map(|at| COLUMNS[*at].1 + 1);
            width.saturating_sub(others.sum())
        };
        let mut kept = WANTED_FIRST[1..=BESIDE_NAMES].to_vec();
        if !kept.contains(&self.column) {
            kept.push(self.column);
        }
        let names = needed.min(beside(&kept)).max(COLUMNS[0].1);
        let mut left = width;
        let mut shown: Vec<usize> = std::iter::once(self.column).chain(WANTED_FIRST).collect();
        let mut seen = 0_u32;
        shown.retain(|at| {
            let space = 1 + if *at == 0 { names } else { COLUMNS[*at].1 };
            let fits = seen & (1 << at) == 0 && space <= left + 1;
            if fits {
                (seen, left) = (seen | 1 << at, left.saturating_sub(space));
            }
            fits
        });
        shown.sort_unstable();
        let names = beside(&shown);
        (shown, names)
    }

    /// Which sinks are down, and then why topics are paused, as far as it is known, in lines of so many characters.
    fn notes(&self, width: u16) -> Vec<Line<'static>> {
        let mut down: BTreeMap<(&str, &str), Vec<&SinkIssue>> = BTreeMap::new();
        for topic in &self.look.topics {
            if let (Some(sink), Some(issue)) = (&topic.config.sink, &topic.sink_issue) {
                down.entry((sink.name.as_str(), issue.state.as_str())).or_default().push(issue);
            }
        }
        let said = |((sink, state), issues): (&(&str, &str), &Vec<&SinkIssue>)| {
            let topics = output::count(issues.len() as u64, "topic");
            let since = issues.iter().filter_map(|issue| issue.since).min();
            let since = since.map_or_else(String::new, |since| format!(" since {}", output::moment(since)));
            let reason = issues.iter().find_map(|issue| issue.reason.as_ref());
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            format!("sink {sink} is {state} for {topics}{since}{reason}")
        };
        let red = Style::new().fg(Color::Red);
        let sinks = down.iter().take(NOTES_SHOWN).map(said).map(|text| (text, red));
        let pauses = self.pauses().into_iter().map(|text| (text, Style::new()));
        let cut = |(text, style): (String, Style)| {
            let lines = wrapped(&output::harmless(&text), usize::from(width.max(1)));
            lines.into_iter().map(move |line| Line::styled(line, style))
        };
        sinks.chain(pauses).flat_map(cut).collect()
    }

    fn pauses(&self) -> Vec<String> {
        let paused: Vec<&Topic> = self.look.topics.iter().filter(|topic| topic.config.paused).collect();
        let line = |topic: &&Topic| {
            format!("{} is paused {}", topic.name, topic.pause.as_ref().map_or_else(String::new, pause::in_words))
        };
        let mut lines: Vec<String> = paused.iter().take(NOTES_SHOWN).map(line).collect();
        let more = paused.len().saturating_sub(NOTES_SHOWN);
        if more > 0 {
            lines.push(format!("{} more paused: duetime topic list", output::count(more as u64, "topic")));
        }
        lines
    }

    fn draw_topics(&self, frame: &mut Frame<'_>, area: ratatui::layout::Rect) {
        let lines = self.lines();
        let counted = format!("{} of {}", lines.len(), output::count(self.look.topics.len() as u64, "topic"));
        let needed = |shown: &[usize]| {
            let named = lines.iter().map(|line| line.name.chars().count() + line.mark(shown).len());
            u16::try_from(named.chain([counted.len()]).max().unwrap_or(0)).unwrap_or(u16::MAX)
        };
        // Without the column of sinks the names say more, and need more; it then fits less still.
        let (shown, _) = self.fitting(area.width, needed(&[GOES_TO]));
        let (shown, width) = self.fitting(area.width, needed(&shown));
        let room = |line: &TopicLine| usize::from(width).saturating_sub(line.mark(&shown).len());
        let names = names::apart(&lines.iter().map(|line| (line.name.as_str(), room(line))).collect::<Vec<_>>());
        let right = |text: String, column: usize| {
            let side = if TEXTS.contains(&column) { Alignment::Left } else { Alignment::Right };
            Cell::from(Text::from(text).alignment(side))
        };
        let head = shown.iter().map(|at| {
            let mark = if self.is_sorted && *at == self.column { if self.down { "↓" } else { "↑" } } else { "" };
            right(format!("{}{mark}", COLUMNS[*at].0), *at)
        });
        let rows = lines.iter().zip(names).map(|(line, name)| {
            let text = |at: usize| match at {
                0 => format!("{name}{}", line.mark(&shown)),
                _ => line.cells[at].clone(),
            };
            let row = Row::new(shown.iter().map(|at| right(text(*at), *at)));
            row.style(line.colour().map_or_else(Style::new, |colour| Style::new().fg(colour)))
        });
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let sum = |column: usize| lines.iter().map(|line| line.keys[column]).sum::<f64>();
        let total = shown.iter().map(|&at| {
            let text = match at {
                0 => counted.clone(),
                2 | 5..=7 | 13 => format!("{:.0}", sum(at)),
                4 | 9 | 10 => rate(sum(at)),
                _ => String::new(),
            };
            right(text, at)
        });
        let widths = shown.iter().map(|at| Constraint::Length(if *at == 0 { width } else { COLUMNS[*at].1 }));
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(bold))
            .footer(Row::new(total).style(bold))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::default().with_selected((!lines.is_empty()).then(|| self.chosen_of(lines.len())));
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn nodes(&self) -> Table<'_> {
        let rows = self.look.nodes.iter().map(|node| {
            let state =
                node.unhealthy.as_ref().map_or_else(|| node.state.clone(), |why| format!("{}: {why}", node.state));
            let row = Row::new([
                node.id.clone(),
                state,
                node.shards_owned.to_string(),
                output::away(node.since),
                node.version.clone(),
                node.address.clone(),
            ]);
            let is_well = ["serving", "stopped"].iter().any(|word| node.state.starts_with(word));
            if is_well { row } else { row.style(Style::new().fg(Color::Red)) }
        });
        let widths =
            [Constraint::Min(12), Constraint::Min(12)].into_iter().chain([6, 13, 9, 21].map(Constraint::Length));
        let head = Row::new(["Node", "State", "Shards", "Since", "Version", "Address"]);
        Table::new(rows, widths).header(head.style(Style::new().add_modifier(Modifier::BOLD)))
    }

    fn sinks(&self) -> Table<'_> {
        let rates = self.look.rates.iter().flat_map(|rates| &rates.sinks);
        let rows = rates.map(|sink| {
            let behind: Vec<&Topic> = self
                .look
                .topics
                .iter()
                .filter(|t| t.config.sink.as_ref().is_some_and(|s| s.name == sink.sink))
                .collect();
            let down = behind.iter().find_map(|topic| topic.sink_issue.as_ref());
            let refused = sink.refused.iter().filter(|refused| refused.count > 0);
            let refused: Vec<String> = refused.map(|refused| format!("{} {}", refused.kind, refused.count)).collect();
            let paused =
                behind.iter().any(|topic| topic.pause.as_ref().is_some_and(|p| p.sink.as_ref() == Some(&sink.sink)));
            let up = if paused { "paused" } else { "up" };
            let row = Row::new([
                sink.sink.clone(),
                down.map_or_else(|| up.to_owned(), |issue| issue.state.clone()),
                behind.iter().map(|topic| topic.due).sum::<u64>().to_string(),
                rate(sink.calls),
                millis(sink.call_p50_ms),
                millis(sink.call_p99_ms),
                refused.join(", "),
            ]);
            if down.is_some() { row.style(Style::new().fg(Color::Red)) } else { row }
        });
        let widths = [Constraint::Min(10)].into_iter().chain([7, 8, 12, 8, 8].map(Constraint::Length));
        let widths = widths.chain([Constraint::Min(18)]);
        let head = Row::new(["Sink", "State", "Due", "Deliveries/s", "Call p50", "Call p99", "Refused"]);
        Table::new(rows, widths).header(head.style(Style::new().add_modifier(Modifier::BOLD)))
    }

    fn one(&self, name: &str) -> String {
        let Some(topic) = self.look.topics.iter().find(|topic| topic.name == name) else {
            return format!("{name} is not there any more");
        };
        let rates = self.rates_of();
        let line = line(topic, rates.get(name).copied(), self.look.at);
        let mut text: Vec<String> =
            COLUMNS.iter().zip(&line.cells).map(|((name, _), cell)| format!("{name:>14}  {cell}")).collect();
        if let Some(rates) = rates.get(name) {
            let late = match rates.of_rest {
                true => "beyond 256 topics lateness is not kept by topic".to_owned(),
                false => format!("{} of {} in the last minute", rates.late, rates.deliveries),
            };
            text.push(format!("{:>14}  {late}", "Late"));
            text.push(format!("{:>14}  {}", "Capacity/s", rates.capacity.map_or_else(|| "–".to_owned(), rate)));
        }
        if topic.config.paused {
            let why = topic.pause.as_ref().map_or_else(|| "yes".to_owned(), pause::in_words);
            text.push(format!("{:>14}  {why}", "Paused"));
        }
        if let Some(issue) = &topic.sink_issue {
            let reason = issue.reason.as_deref().unwrap_or("of a reason that this token may not see");
            let since = issue.since.map_or_else(String::new, |since| format!(" since {}", output::moment(since)));
            text.push(format!("{:>14}  {}{since}: {reason}", "Sink", issue.state));
        }
        text.push(String::new());
        text.push(format!("{:>14}  duetime topic get {name}", "Settings"));
        text.join("\n")
    }

    fn forecast(&self, name: &str) -> String {
        let Some(forecast) = &self.look.forecast else { return format!("{name}: counting what falls due …") };
        let most = forecast.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
        let mut text = vec![format!("{name}: {} due, and in the coming hour", output::count(forecast.due, "message"))];
        text.extend(forecast.herd.as_ref().map(|herd| herd.summary.clone()));
        text.extend(forecast.buckets.iter().map(|bucket| {
            let chars = usize::try_from((bucket.count * BAR_CHARS).div_ceil(most)).unwrap_or(0);
            let mark = if bucket.above_capacity == Some(true) { " !" } else { "" };
            format!("{}  {:>9}  {}{mark}", output::second(bucket.from), bucket.count, "█".repeat(chars))
        }));
        text.join("\n")
    }
}
