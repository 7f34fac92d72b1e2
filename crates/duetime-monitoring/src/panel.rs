//! One panel of a dashboard.

use serde_json::{Value, json};

/// How a panel shows its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Lines over time.
    Lines,
    /// Lines over time, one upon another.
    Stacked,
    /// One number for each series.
    Number,
    /// A histogram's buckets over time, by colour.
    Heat,
    /// States over time: 0 and above 0.
    States,
    /// The present values, in rows.
    Table,
}

/// A panel: one question, its unit, and the expressions that answer it.
#[derive(Clone, Debug)]
pub struct Panel {
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    shape: Shape,
    width: u32,
    /// Its values can be below 0.
    signed: bool,
    queries: Vec<(String, &'static str)>,
    /// Queries whose values have no unit, by their names: columns of a table.
    plain: Vec<&'static str>,
    thresholds: Vec<(Option<f64>, &'static str)>,
    runbooks: Vec<&'static str>,
}

/// Rows of the grid that a panel is high.
pub(crate) const HEIGHT: u32 = 8;
const NUMBER_HEIGHT: u32 = 4;

impl Panel {
    pub(crate) fn new(shape: Shape, title: &'static str, unit: &'static str, description: &'static str) -> Self {
        let width = if shape == Shape::Number { 3 } else { 12 };
        Self {
            title,
            description,
            unit,
            shape,
            width,
            signed: false,
            queries: Vec::new(),
            plain: Vec::new(),
            thresholds: vec![(None, "green")],
            runbooks: Vec::new(),
        }
    }

    /// Columns of the grid's 24.
    pub(crate) fn wide(mut self, width: u32) -> Self {
        self.width = width;
        self
    }

    /// Its values can be below 0, so its axis does not begin there.
    pub(crate) fn signed(mut self) -> Self {
        self.signed = true;
        self
    }

    /// One expression more, with the name of its series.
    pub(crate) fn query(mut self, expr: String, legend: &'static str) -> Self {
        self.queries.push((expr, legend));
        self
    }

    /// One column more of a table, whose numbers are without the panel's unit.
    pub(crate) fn plain_column(mut self, expr: String, name: &'static str) -> Self {
        self.plain.push(name);
        self.query(expr, name)
    }

    /// From this value on it is orange.
    pub(crate) fn orange_from(self, value: f64) -> Self {
        self.threshold(value, "orange")
    }

    /// From this value on it is red.
    pub(crate) fn red_from(self, value: f64) -> Self {
        self.threshold(value, "red")
    }

    fn threshold(mut self, value: f64, color: &'static str) -> Self {
        debug_assert!(self.thresholds.last().is_some_and(|(last, _)| last.is_none_or(|last| last < value)));
        self.thresholds.push((Some(value), color));
        self
    }

    /// The section of this alert in the runbooks says what to do about it.
    pub(crate) fn runbook(mut self, alert: &'static str) -> Self {
        self.runbooks.push(alert);
        self
    }

    /// Its expressions, with Grafana's variables in them.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        self.queries.iter().map(|(expr, _)| expr.as_str())
    }

    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    pub(crate) fn height(&self) -> u32 {
        if self.shape == Shape::Number { NUMBER_HEIGHT } else { HEIGHT }
    }

    fn begins_at_0(&self) -> bool {
        !self.signed && matches!(self.shape, Shape::Lines | Shape::Stacked)
    }

    fn kind(&self) -> &'static str {
        match self.shape {
            Shape::Lines | Shape::Stacked => "timeseries",
            Shape::Number => "stat",
            Shape::Heat => "heatmap",
            Shape::States => "state-timeline",
            Shape::Table => "table",
        }
    }

    fn options(&self) -> Value {
        match self.shape {
            Shape::Lines | Shape::Stacked => json!({
                "legend": {"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": ["lastNotNull", "max"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            Shape::Number => json!({
                "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
            }),
            Shape::Heat => json!({
                "calculate": false, "cellGap": 1, "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
                "yAxis": {"axisPlacement": "left", "unit": self.unit}, "tooltip": {"mode": "single", "yHistogram": false},
                "legend": {"show": true}, "rowsFrame": {"layout": "auto"}, "filterValues": {"le": 1e-9},
            }),
            Shape::States => json!({
                "mergeValues": true, "showValue": "never", "rowHeight": 0.9,
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": false},
                "tooltip": {"mode": "single", "sort": "none"},
            }),
            Shape::Table => json!({"showHeader": true, "cellHeight": "sm"}),
        }
    }

    fn custom(&self) -> Value {
        match self.shape {
            Shape::Lines => {
                json!({"drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "showPoints": "never", "spanNulls": false})
            }
            Shape::Stacked => json!({
                "drawStyle": "line", "lineWidth": 1, "fillOpacity": 30, "showPoints": "never", "spanNulls": false,
                "stacking": {"mode": "normal", "group": "A"},
            }),
            Shape::States => json!({"fillOpacity": 70, "lineWidth": 0}),
            Shape::Number | Shape::Heat | Shape::Table => json!({}),
        }
    }

    /// A table has a row for each set of labels, and its queries' names over their columns.
    fn transformations(&self) -> Value {
        if self.shape != Shape::Table {
            return json!([]);
        }
        let names: serde_json::Map<String, Value> = self
            .queries
            .iter()
            .zip('A'..='Z')
            .map(|((_, name), id)| (format!("Value #{id}"), Value::from(*name)))
            .collect();
        json!([
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Time": true}, "indexByName": {}, "renameByName": names}},
        ])
    }

    /// As Grafana reads it.
    pub(crate) fn json(&self, id: usize, x: u32, y: u32) -> Value {
        let source = json!({"type": "prometheus", "uid": "${datasource}"});
        let now = self.shape == Shape::Table;
        let targets: Vec<Value> = self
            .queries
            .iter()
            .zip('A'..='Z')
            .map(|((expr, legend), id)| {
                json!({
                    "refId": id.to_string(), "datasource": source, "expr": expr, "legendFormat": legend, "editorMode": "code",
                    "range": !now, "instant": now, "format": match self.shape {
                        Shape::Heat => "heatmap",
                        Shape::Table => "table",
                        _ => "time_series",
                    },
                })
            })
            .collect();
        let steps: Vec<Value> =
            self.thresholds.iter().map(|(value, color)| json!({"value": value, "color": color})).collect();
        let links: Vec<Value> = self
            .runbooks
            .iter()
            .map(|alert| {
                let section = format!("${{runbooks}}#duetime{}", alert.to_lowercase());
                json!({"title": format!("Runbook: {alert}"), "url": section, "targetBlank": true})
            })
            .collect();
        let plain: Vec<Value> = self
            .plain
            .iter()
            .map(|name| json!({"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": "none"}]}))
            .collect();
        let colour = if matches!(self.shape, Shape::Number | Shape::States) { "thresholds" } else { "palette-classic" };
        json!({
            "id": id, "type": self.kind(), "title": self.title, "description": self.description, "datasource": source,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height()},
            "targets": targets, "links": links, "transformations": self.transformations(),
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit, "min": if self.begins_at_0() { json!(0) } else { Value::Null },
                    "color": {"mode": colour}, "custom": self.custom(),
                    "thresholds": {"mode": "absolute", "steps": steps},
                },
                "overrides": plain,
            },
            "options": self.options(),
        })
    }
}
