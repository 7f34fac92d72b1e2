//! What `duetime top` shows, and what its keys do. In the words of the console; asks nobody.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use duetime_client::{Forecast, NodeView, Rates, Topic, TopicRates};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, TableState};

use super::topic::{named, sink_of};
use super::{output, pause};

/// A message that waits this long is late, and very late.
const LATE_S: [f64; 2] = [1.0, 10.0];
const COLUMNS: [&str; 13] = [
    "Topic",
    "Scheduled",
    "Due",
    "Oldest due",
    "Late p50",
    "p99",
    "In/s",
    "Cancelled/s",
    "Out/s",
    "In flight",
    "Dead",
    "Shards",
    "Goes to",
];
/// The column that is sorted by at first: the oldest due message on top, as in the console.
const OLDEST: usize = 3;
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
}

/// What a key asks of who runs the screen.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    /// Something that is not known yet is to be shown.
    Look,
    Quit,
}

/// One line of the topics.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicLine {
    name: String,
    cells: [String; COLUMNS.len()],
    keys: [f64; COLUMNS.len()],
    is_down: bool,
    late: usize,
    dead: u64,
}

/// What `duetime top` shows, and what its keys do.
#[derive(Debug)]
pub struct Screen {
    pub page: Page,
    pub look: Look,
    /// Why the last look failed.
    pub trouble: Option<String>,
    node: String,
    column: usize,
    down: bool,
    filter: String,
    typing: bool,
    chosen: usize,
}

fn rate(number: f64) -> String {
    if number >= 10.0 || number == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

fn millis(ms: Option<f64>) -> String {
    match ms {
        None => "–".to_owned(),
        Some(ms) if ms < 1000.0 => format!("{ms:.0} ms"),
        Some(ms) => format!("{:.1} s", ms / 1000.0),
    }
}

fn seconds(s: Option<f64>) -> String {
    millis(s.map(|s| s * 1000.0))
}

fn line(topic: &Topic, rates: Option<&TopicRates>, at: i64) -> TopicLine {
    let waited = topic.oldest_due_at.map(|due| at.saturating_sub(due).max(0) as f64 / 1000.0);
    let of = |pick: fn(&TopicRates) -> f64| rates.map_or(0.0, pick);
    let (incoming, cancelled, out) = (of(|r| r.scheduled), of(|r| r.cancelled), of(|r| r.delivered));
    let (p50, p99) = (rates.and_then(|r| r.late_p50_ms), rates.and_then(|r| r.late_p99_ms));
    let sink = topic.sink.as_ref().map_or_else(|| "consumers claim".to_owned(), |sink| sink_of(topic, &sink.name));
    let counts = [topic.scheduled, topic.due, topic.in_flight, topic.dead].map(|count| count as f64);
    TopicLine {
        name: topic.name.clone(),
        keys: [
            0.0,
            counts[0],
            counts[1],
            waited.unwrap_or(-1.0),
            p50.unwrap_or(-1.0),
            p99.unwrap_or(-1.0),
            incoming,
            cancelled,
            out,
            counts[2],
            counts[3],
            f64::from(topic.shard_count),
            0.0,
        ],
        cells: [
            named(topic),
            topic.scheduled.to_string(),
            topic.due.to_string(),
            seconds(waited),
            millis(p50),
            millis(p99),
            rate(incoming),
            rate(cancelled),
            rate(out),
            topic.in_flight.to_string(),
            topic.dead.to_string(),
            topic.shard_count.to_string(),
            sink,
        ],
        is_down: topic.sink_trouble.is_some(),
        late: LATE_S.iter().filter(|limit| waited.is_some_and(|waited| waited > **limit)).count(),
        dead: topic.dead,
    }
}

impl Screen {
    /// Before the first look is shown.
    pub fn new(node: String, look: Look) -> Self {
        Self {
            page: Page::Topics,
            look,
            trouble: None,
            node,
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
            let column = self.column;
            let by = a.keys[column].partial_cmp(&b.keys[column]).unwrap_or(Ordering::Equal);
            let by = if matches!(column, 0 | 12) { a.cells[column].cmp(&b.cells[column]) } else { by };
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
            KeyCode::Esc if self.page == Page::Topics && self.filter.is_empty() => return Asked::Quit,
            KeyCode::Esc => {
                self.page = Page::Topics;
                self.filter.clear();
            }
            KeyCode::Char('/') => (self.page, self.typing) = (Page::Topics, true),
            KeyCode::Char('t') => self.page = Page::Topics,
            KeyCode::Char('n') => self.page = Page::Nodes,
            KeyCode::Char('k') => self.page = Page::Sinks,
            KeyCode::Char('s') | KeyCode::Right => self.column = (self.column + 1) % COLUMNS.len(),
            KeyCode::Char('S') | KeyCode::Left => self.column = (self.column + COLUMNS.len() - 1) % COLUMNS.len(),
            KeyCode::Char('r') => self.down = !self.down,
            KeyCode::Down => self.chosen = (self.chosen + 1).min(self.lines().len().saturating_sub(1)),
            KeyCode::Up => self.chosen = self.chosen.saturating_sub(1),
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

    /// The page of the topic that is chosen, or shown already.
    fn open(&mut self, page: impl Fn(String) -> Page) {
        let name = match &self.page {
            Page::Topic(name) | Page::Forecast(name) => Some(name.clone()),
            _ => self.lines().get(self.chosen).map(|line| line.name.clone()),
        };
        if let Some(name) = name {
            self.page = page(name);
        }
    }

    /// Draws all of it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let state = match &self.trouble {
            Some(trouble) => trouble.clone(),
            None => output::second(self.look.at),
        };
        let keys = if self.typing {
            format!(" only topics with: {}▏ Enter keeps it, Esc forgets it ", self.filter)
        } else {
            " t topics  n nodes  k sinks  Enter one topic  f forecast  / filter  s sort  r reverse  q quits ".to_owned()
        };
        let block = Block::bordered()
            .title(format!(" duetime top · {} · {state} ", self.node))
            .title_bottom(Line::from(keys).alignment(Alignment::Left));
        let inside = block.inner(frame.area());
        frame.render_widget(block, frame.area());
        match &self.page {
            Page::Topics => self.draw_topics(frame, inside),
            Page::Nodes => frame.render_widget(self.nodes(), inside),
            Page::Sinks => frame.render_widget(self.sinks(), inside),
            Page::Topic(name) => frame.render_widget(Paragraph::new(self.one(name)), inside),
            Page::Forecast(name) => frame.render_widget(Paragraph::new(self.forecast(name)), inside),
        }
    }

    fn draw_topics(&self, frame: &mut Frame<'_>, area: ratatui::layout::Rect) {
        let lines = self.lines();
        let right = |text: String, column: usize| {
            let is_text = matches!(column, 0 | 12);
            Cell::from(Text::from(text).alignment(if is_text { Alignment::Left } else { Alignment::Right }))
        };
        let head = COLUMNS.iter().enumerate().map(|(at, name)| {
            let mark = if at == self.column { if self.down { "↓" } else { "↑" } } else { "" };
            right(format!("{name}{mark}"), at)
        });
        let rows = lines.iter().map(|line| {
            let row = Row::new(line.cells.iter().cloned().enumerate().map(|(at, text)| right(text, at)));
            match (line.is_down || line.late > 1, line.late > 0 || line.dead > 0) {
                (true, _) => row.style(Style::new().fg(Color::Red)),
                (false, true) => row.style(Style::new().fg(Color::Yellow)),
                (false, false) => row,
            }
        });
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let sum = |column: usize| lines.iter().map(|line| line.keys[column]).sum::<f64>();
        let total = (0..COLUMNS.len()).map(|at| {
            let text = match at {
                0 => format!("{} of {} topics", lines.len(), self.look.topics.len()),
                1 | 2 | 9 | 10 | 11 => format!("{:.0}", sum(at)),
                6..=8 => rate(sum(at)),
                _ => String::new(),
            };
            right(text, at)
        });
        let widths = [
            Constraint::Min(14),
            Constraint::Length(11),
            Constraint::Length(9),
            Constraint::Length(11),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(8),
            Constraint::Length(12),
            Constraint::Length(8),
            Constraint::Length(10),
            Constraint::Length(8),
            Constraint::Length(7),
            Constraint::Length(18),
        ];
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(bold))
            .footer(Row::new(total).style(bold))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::default().with_selected((!lines.is_empty()).then_some(self.chosen));
        let [area] = Layout::vertical([Constraint::Min(3)]).areas(area);
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
            if node.state == "serving" { row } else { row.style(Style::new().fg(Color::Red)) }
        });
        let widths =
            [Constraint::Min(12), Constraint::Min(14)].into_iter().chain([8, 14, 10, 22].map(Constraint::Length));
        let head = Row::new(["Node", "State", "Shards", "Since", "Version", "Address"]);
        Table::new(rows, widths).header(head.style(Style::new().add_modifier(Modifier::BOLD)))
    }

    fn sinks(&self) -> Table<'_> {
        let rates = self.look.rates.iter().flat_map(|rates| &rates.sinks);
        let rows = rates.map(|sink| {
            let behind: Vec<&Topic> =
                self.look.topics.iter().filter(|t| t.sink.as_ref().is_some_and(|s| s.name == sink.sink)).collect();
            let down = behind.iter().find_map(|topic| topic.sink_trouble.as_ref());
            let refused = sink.refused.iter().filter(|refused| refused.count > 0);
            let refused: Vec<String> = refused.map(|refused| format!("{} {}", refused.kind, refused.count)).collect();
            let row = Row::new([
                sink.sink.clone(),
                down.map_or_else(|| "up".to_owned(), |trouble| trouble.state.clone()),
                behind.iter().map(|topic| topic.due).sum::<u64>().to_string(),
                rate(sink.calls),
                millis(sink.call_p50_ms),
                millis(sink.call_p99_ms),
                refused.join(", "),
            ]);
            if down.is_some() { row.style(Style::new().fg(Color::Red)) } else { row }
        });
        let widths = [Constraint::Min(14)].into_iter().chain([10, 10, 12, 9, 9].map(Constraint::Length));
        let widths = widths.chain([Constraint::Min(20)]);
        let head = Row::new(["Sink", "State", "Waits", "Hand-overs/s", "p50", "p99", "Not accepted since the start"]);
        Table::new(rows, widths).header(head.style(Style::new().add_modifier(Modifier::BOLD)))
    }

    fn one(&self, name: &str) -> String {
        let Some(topic) = self.look.topics.iter().find(|topic| topic.name == name) else {
            return format!("{name} is not there any more");
        };
        let rates = self.rates_of();
        let line = line(topic, rates.get(name).copied(), self.look.at);
        let mut text: Vec<String> =
            COLUMNS.iter().zip(&line.cells).map(|(name, cell)| format!("{name:>14}  {cell}")).collect();
        if let Some(rates) = rates.get(name) {
            text.push(format!("{:>14}  {} of {} in the last minute", "Late", rates.late, rates.handed_over));
            text.push(format!("{:>14}  {}", "Capacity/s", rates.capacity.map_or_else(|| "–".to_owned(), rate)));
        }
        if topic.paused {
            let why = topic.pause.as_ref().map_or_else(|| "yes".to_owned(), pause::in_words);
            text.push(format!("{:>14}  {why}", "Paused"));
        }
        if let Some(trouble) = &topic.sink_trouble {
            let reason = trouble.reason.as_deref().unwrap_or("of a reason that this token may not see");
            let since = trouble.since.map_or_else(String::new, |since| format!(" since {}", output::moment(since)));
            text.push(format!("{:>14}  {}{since}: {reason}", "Sink", trouble.state));
        }
        text.push(String::new());
        text.push(format!("{:>14}  duetime topic get {name}", "Settings"));
        text.join("\n")
    }

    fn forecast(&self, name: &str) -> String {
        let Some(forecast) = &self.look.forecast else { return format!("{name}: counting what falls due …") };
        let most = forecast.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
        let mut text = vec![format!("{name}: {} due, and in the coming hour", forecast.due)];
        text.extend(forecast.herd.as_ref().map(|herd| herd.summary.clone()));
        text.extend(forecast.buckets.iter().map(|bucket| {
            let chars = usize::try_from((bucket.count * BAR_CHARS).div_ceil(most)).unwrap_or(0);
            let mark = if bucket.above_capacity == Some(true) { " !" } else { "" };
            format!("{}  {:>9}  {}{mark}", output::second(bucket.from), bucket.count, "█".repeat(chars))
        }));
        text.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, due: u64, oldest: Option<i64>) -> Topic {
        serde_json::from_value(serde_json::json!({
            "name": name, "shards": 4, "visibility_timeout": "30s", "retry": {}, "delivery": "at-least-once",
            "max_payload": 10, "scheduled": 7, "due": due, "in_flight": 1, "dead": 3, "shard_count": 4,
            "oldest_due_at": oldest, "sink": {"name": "shop"},
            "sink_trouble": {"state": "down", "since": 5, "reason": "refused"},
            "paused": true, "pause": {"since": 7, "by": "ops", "sink": "shop", "reason": "the shop moves"}
        }))
        .unwrap()
    }

    fn screen() -> Screen {
        let rates = serde_json::from_value(serde_json::json!({
            "node": "n1", "topics": [{ "topic": "orders", "over_ms": 60_000, "scheduled": 100.0, "cancelled": 90.0,
                "delivered": 9.5, "retried": 0.0, "dead": 0.0, "late_p99_ms": 4.0 }],
            "sinks": [{ "sink": "shop", "type": "http", "calls": 3.0, "refused": [{ "kind": "timeout", "count": 2 }] }]
        }));
        let topics = vec![topic("mails", 0, None), topic("orders", 2, Some(1000)), topic("pings", 5, Some(9000))];
        let look = Look { at: 10_000, topics, rates: Some(rates.unwrap()), ..Look::default() };
        Screen::new("http://node".to_owned(), look)
    }

    fn press(screen: &mut Screen, keys: &str) {
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                c => KeyCode::Char(c),
            };
            screen.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
    }

    fn drawn(screen: &Screen) -> String {
        let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(160, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn names(screen: &Screen) -> Vec<String> {
        screen.lines().into_iter().map(|line| line.name).collect()
    }

    #[test]
    fn topics_are_sorted_by_any_column_and_filtered_with_totals_below() {
        let mut screen = screen();
        assert_eq!(names(&screen), ["orders", "pings", "mails"], "the oldest due on top");
        press(&mut screen, "r");
        assert_eq!(names(&screen), ["mails", "pings", "orders"]);
        press(&mut screen, "SSS");
        assert_eq!(names(&screen), ["mails", "orders", "pings"], "by name");
        let text = drawn(&screen);
        for word in ["3 of 3 topics", "4 ms", "9.0 s", "shop (down)", "9.5", "21"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        press(&mut screen, "/ord\n");
        assert_eq!(names(&screen), ["orders"]);
        assert!(drawn(&screen).contains("1 of 3 topics"));
    }

    #[test]
    fn each_page_is_a_key_away_and_esc_leads_back() {
        let mut screen = screen();
        press(&mut screen, "k");
        let text = drawn(&screen);
        assert!(text.contains("timeout 2") && text.contains("down") && text.contains("Hand-overs/s"), "{text}");
        press(&mut screen, "n");
        assert!(drawn(&screen).contains("Address"));
        press(&mut screen, "t\n");
        assert_eq!(screen.page, Page::Topic("orders".to_owned()));
        let text = drawn(&screen);
        assert!(text.contains("duetime topic get orders"), "{text}");
        assert!(text.contains("Paused  since") && text.contains("by ops through sink shop: the shop moves"), "{text}");
        let forecast = KeyEvent::new(KeyCode::Char('f'), KeyModifiers::NONE);
        assert_eq!(screen.press(forecast), Asked::Look);
        assert_eq!(screen.page, Page::Forecast("orders".to_owned()));
        let esc = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
        assert_eq!((screen.press(esc), &screen.page), (Asked::Nothing, &Page::Topics));
        assert_eq!(screen.press(esc), Asked::Quit);
    }
}
