//! Texts with places for what a message says: `orders.{topic}.{header.region|eu}`.
//!
//! Upstream: routing keys, subjects and keys that a topic sets. Checked when the topic is bound,
//! filled in for each message.

use duetime_core::{Delivery, TopicName};

/// Texts with places for what a message says: `orders.{topic}.{header.region|eu}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Topic,
    Id,
    Header { name: String, or: Option<String> },
}

/// What a template may contain, for refusals.
const HELP: &str = "write {topic}, {id}, {header.NAME} or {header.NAME|DEFAULT}, and {{ or }} for a brace";

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// A sentence that names the place and what may stand there.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let place = if brace == "{" { rest.split_once('}') } else { None };
            let Some((place, after)) = place else { return Err(format!("{text:?} has a lone {brace}; {HELP}")) };
            rest = after;
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(part(place).ok_or_else(|| format!("{text:?} has {{{place}}}; {HELP}"))?);
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self(parts))
    }

    /// Its fixed parts.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Literal(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Whether two messages of one topic may fill it in differently.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Id | Part::Header { .. }))
    }

    /// What it becomes for every message of `topic`; what only a message can say is `unknown`.
    #[must_use]
    pub fn of_topic(&self, topic: &TopicName, plain: impl Fn(char) -> char, unknown: &str) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Topic => out.extend(topic.as_str().chars().map(&plain)),
                Part::Id | Part::Header { .. } => out.push_str(unknown),
            }
        }
        out
    }

    /// What it begins with for every message of `topic`: the text before the first place that only a message can fill.
    #[must_use]
    pub fn beginning(&self, topic: &TopicName) -> String {
        let known = self.0.iter().map_while(|part| match part {
            Part::Literal(text) => Some(text.as_str()),
            Part::Topic => Some(topic.as_str()),
            Part::Id | Part::Header { .. } => None,
        });
        known.collect()
    }

    /// Whether it is a header of the message and nothing else.
    #[must_use]
    pub fn is_one_header(&self) -> bool {
        matches!(&self.0[..], [Part::Header { .. }])
    }

    /// The default of the header that it is and nothing else.
    #[must_use]
    pub fn whole_default(&self) -> Option<&str> {
        match &self.0[..] {
            [Part::Header { or, .. }] => or.as_deref(),
            _ => None,
        }
    }

    /// Fills it in for `message`; `plain` makes a value fit between the literals.
    ///
    /// # Errors
    ///
    /// A sentence that names the header which the message lacks.
    pub fn fill(&self, message: &Delivery, plain: impl Fn(char) -> char) -> Result<String, String> {
        self.fill_with(message, |out, value| out.extend(value.chars().map(&plain)))
    }

    /// Fills it in for `message`; `put` writes a value behind what is there.
    ///
    /// # Errors
    ///
    /// A sentence that names the header which the message lacks.
    pub fn fill_with(&self, message: &Delivery, put: impl Fn(&mut String, &str)) -> Result<String, String> {
        let mut out = String::new();
        for part in &self.0 {
            let value = match part {
                Part::Literal(text) => {
                    out.push_str(text);
                    continue;
                }
                Part::Topic => message.topic.as_str(),
                Part::Id => message.id.as_str(),
                Part::Header { name, or } => message
                    .headers
                    .iter()
                    .find(|(known, _)| known.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value)
                    .or(or.as_deref())
                    .ok_or_else(|| {
                        format!("the message has no header {name:?}, which its topic's sink settings need")
                    })?,
            };
            put(&mut out, value);
        }
        Ok(out)
    }
}

fn part(place: &str) -> Option<Part> {
    match place {
        "topic" => Some(Part::Topic),
        "id" => Some(Part::Id),
        _ => {
            let header = place.strip_prefix("header.")?;
            let (name, or) = header.split_once('|').map_or((header, None), |(name, or)| (name, Some(or.to_owned())));
            (!name.is_empty()).then(|| Part::Header { name: name.to_owned(), or })
        }
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::Headers;
    use duetime_testkit::conformance::sink::message;

    use super::*;

    #[test]
    fn a_template_is_filled_with_what_the_message_says() {
        let headers = Headers::new(vec![("Region".to_owned(), "e.u".to_owned())]).unwrap();
        let message = Delivery { headers, ..message("a 1", "") };
        let fill = |text: &str| Template::parse(text).unwrap().fill(&message, |c| if c == '.' { '_' } else { c });
        assert_eq!(fill("x.{topic}.{id}.{header.region}").unwrap(), "x.conformance.a 1.e_u");
        assert_eq!(fill("{{id}} {header.shop|none}").unwrap(), "{id} none");
        assert_eq!(fill("").unwrap(), "");
        let varies = |text: &str| Template::parse(text).unwrap().varies();
        assert!(!varies("x.{topic}") && varies("{id}") && varies("{header.region|eu}"));
        let is_one_header = |text: &str| Template::parse(text).unwrap().is_one_header();
        assert!(is_one_header("{header.region|eu}") && !is_one_header("{id}") && !is_one_header("{header.region}/"));
        let whole_default = |text: &str| Template::parse(text).unwrap().whole_default().map(str::to_owned);
        assert_eq!(whole_default("{header.region|eu}").as_deref(), Some("eu"));
        assert_eq!(["{header.region}", "{header.region|eu}/", "{id}"].map(whole_default), [None, None, None]);
        let beginning = |text: &str| Template::parse(text).unwrap().beginning(&message.topic);
        assert_eq!([beginning("a{{{id}b"), beginning("{id}b")], ["a{", ""]);
        assert_eq!(beginning("a{topic}/{header.x}/{topic}"), "aconformance/");
        let known = Template::parse("x.{topic}.{header.region|eu}").unwrap();
        assert_eq!(known.of_topic(&message.topic, |c| c.to_ascii_uppercase(), "*"), "x.CONFORMANCE.*");
        assert!(fill("{header.shop}").unwrap_err().contains("\"shop\""));
        for wrong in ["{", "}", "{ids}", "{header.}", "a{id", "{}"] {
            let error = Template::parse(wrong).unwrap_err();
            assert!(error.contains("{header.NAME|DEFAULT}"), "{wrong}: {error}");
        }
    }
}
