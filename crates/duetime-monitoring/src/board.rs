//! A dashboard: rows of panels on Grafana's grid of 24 columns, with the variables that all have.

use duetime_metrics::table;
use serde_json::{Value, json};

use crate::expr::{TOPICS, max, process};
use crate::panel::Panel;

/// Columns of the grid.
const COLUMNS: u32 = 24;
/// The version of the JSON that is written: what Grafana 12 and 13 write, and 10 and 11 read.
const SCHEMA_VERSION: u32 = 41;

/// A dashboard.
#[derive(Clone, Debug)]
pub struct Board {
    /// What its file and its address are called.
    pub name: &'static str,
    title: &'static str,
    description: &'static str,
    rows: Vec<(&'static str, Vec<Panel>)>,
}

impl Board {
    pub(crate) fn new(name: &'static str, title: &'static str, description: &'static str) -> Self {
        Self { name, title, description, rows: Vec::new() }
    }

    /// One row more.
    pub(crate) fn row(mut self, title: &'static str, panels: Vec<Panel>) -> Self {
        self.rows.push((title, panels));
        self
    }

    /// All panels, from top to bottom.
    pub fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.rows.iter().flat_map(|(_, panels)| panels)
    }

    /// The file that Grafana reads, the same bytes each time. `runbooks` is the address under which the runbooks can be
    /// read; panels link to their sections.
    #[must_use]
    pub fn file(&self, runbooks: &str) -> String {
        format!("{:#}\n", sorted(self.json(runbooks)))
    }

    /// As Grafana reads it.
    #[must_use]
    pub fn json(&self, runbooks: &str) -> Value {
        let mut panels = Vec::new();
        let mut y = 0;
        for (title, row) in &self.rows {
            panels.push(json!({
                "id": panels.len() + 1, "type": "row", "title": title, "collapsed": false, "panels": [],
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            }));
            y += 1;
            let (mut x, mut high) = (0, 0);
            for panel in row {
                if x + panel.width() > COLUMNS {
                    (x, y, high) = (0, y + high, 0);
                }
                panels.push(panel.json(panels.len() + 1, x, y));
                x += panel.width();
                high = high.max(panel.height());
            }
            y += high;
        }
        json!({
            "uid": format!("duetime-{}", self.name), "title": format!("Duetime / {}", self.title),
            "description": self.description, "tags": ["duetime"], "schemaVersion": SCHEMA_VERSION, "version": 1,
            "editable": true, "graphTooltip": 1, "refresh": "10s", "timezone": "browser",
            "time": {"from": "now-1h", "to": "now"},
            "links": [{
                "type": "dashboards", "tags": ["duetime"], "title": "Duetime", "asDropdown": false, "includeVars": true,
                "keepTime": true, "targetBlank": false, "icon": "external link", "url": "", "tooltip": "",
            }],
            "annotations": {"list": annotations().iter().map(Annotation::json).collect::<Vec<_>>()},
            "templating": {"list": variables(runbooks)},
            "panels": panels,
        })
    }
}

/// With keys in order, whatever order the library keeps them in.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<(String, Value)> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(pairs.into_iter().collect())
        }
        Value::Array(all) => Value::Array(all.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Something that happened, which every panel over time shows.
#[derive(Clone, Debug)]
pub struct Annotation {
    name: &'static str,
    color: &'static str,
    /// While this has a value above 0 it lasts.
    pub expr: String,
    text: &'static str,
    /// The value is the time at which it happened, in milliseconds.
    value_is_time: bool,
}

impl Annotation {
    fn json(&self) -> Value {
        json!({
            "name": self.name, "iconColor": self.color, "expr": self.expr, "titleFormat": self.name, "textFormat": self.text,
            "useValueForTime": self.value_is_time, "step": "15s", "tagKeys": "", "enable": true, "hide": false,
            "datasource": source(),
        })
    }
}

/// What all dashboards show: starts of nodes, changes of a shard count, sinks that are down.
#[must_use]
pub fn annotations() -> Vec<Annotation> {
    let lasting = |name, color, expr, text| Annotation { name, color, expr, text, value_is_time: false };
    let started = format!("{} * 1000", process("start_time_seconds"));
    let moves = format!("{} > 0", max(&table::RESIZE_REMAINING, "topic", TOPICS));
    let open = format!("{} == 1", max(&table::BREAKER_OPEN, "sink", TOPICS));
    vec![
        Annotation { name: "Start of a node", color: "blue", expr: started, text: "{{instance}}", value_is_time: true },
        lasting("Resize", "purple", moves, "{{topic}}"),
        lasting("Sink down", "red", open, "{{sink}}"),
    ]
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variables(runbooks: &str) -> Vec<Value> {
    let choice = |name: &str, label: &str, query: String| {
        json!({
            "type": "query", "name": name, "label": label, "datasource": source(), "query": {"query": query, "refId": name},
            "definition": query, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]}, "options": [], "hide": 0, "regex": "",
        })
    };
    vec![
        json!({
            "type": "datasource", "name": "datasource", "label": "Source", "query": "prometheus", "current": {},
            "options": [], "hide": 0, "refresh": 1, "regex": "", "multi": false, "includeAll": false,
        }),
        choice("job", "Cluster", format!("label_values({}, job)", table::NODES_SERVING.name)),
        choice("instance", "Node", format!(r#"label_values({}{{job=~"$job"}}, instance)"#, table::NODES_SERVING.name)),
        choice("topic", "Topic", format!(r#"label_values({}{{job=~"$job"}}, topic)"#, table::SHARDS.name)),
        json!({
            "type": "constant", "name": "runbooks", "label": "Runbooks", "query": runbooks, "hide": 2, "skipUrlSync": true,
            "current": {"text": runbooks, "value": runbooks}, "options": [],
        }),
    ]
}
