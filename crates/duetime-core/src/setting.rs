//! Settings that are declared once: from one declaration come the struct, its defaults, and the descriptions from
//! which the HTTP interface, its OpenAPI document, the command line and the documentation are made.

/// Describes one setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in JSON and in the configuration file.
    pub name: &'static str,
    /// Its documentation: what it does, its bounds, its default.
    pub doc: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// Its option on the command line, where that is not made of its name and the names around it.
    pub option: Option<&'static str>,
}

/// The values that a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A length of time, written `"30s"`.
    Duration,
    /// A list of lengths of time, at most so many. An object that has one of these may be given as that list alone.
    Durations(usize),
    /// A number of bytes, or `"256KiB"`.
    Size,
    /// A whole number within these bounds.
    Count(u64, u64),
    /// A number within these bounds.
    Number(f64, f64),
    /// True or false.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number of shards, or `"auto"`.
    Shards,
    /// A sink's name, with the topic's own settings for that sink.
    Sink,
    /// The name of another topic.
    Topic,
    /// An object of other settings, each of which may be absent.
    Object(&'static [Setting]),
    /// As the kind within, or absent: none, or no limit.
    Maybe(&'static Kind),
}

impl Kind {
    /// Returns the kind of a value that is not absent.
    #[must_use]
    pub fn present(&self) -> &Self {
        if let Self::Maybe(kind) = self { kind.present() } else { self }
    }

    /// Returns the list that an object may be given as: of `retry`, its waits.
    #[must_use]
    pub fn list_form(&self) -> Option<&'static Self> {
        self.inner().iter().map(|setting| &setting.kind).find(|kind| matches!(kind, Self::Durations(_)))
    }

    /// Returns the settings within an object; empty for any other kind.
    #[must_use]
    pub fn inner(&self) -> &'static [Setting] {
        if let Self::Object(inner) = self.present() { inner } else { &[] }
    }
}

impl Setting {
    /// Returns the first paragraph of its documentation, on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let lines = self.doc.lines().map(str::trim).take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ")
    }

    /// Returns the whole documentation, paragraphs apart.
    #[must_use]
    pub fn text(&self) -> String {
        let lines: Vec<&str> = self.doc.trim().lines().map(str::trim).collect();
        let paragraphs = lines.split(|line| line.is_empty()).map(|lines| lines.join(" "));
        paragraphs.collect::<Vec<_>>().join("\n\n")
    }
}

/// Returns the names of settings.
pub fn names(settings: &'static [Setting]) -> Vec<&'static str> {
    settings.iter().map(|setting| setting.name).collect()
}

/// Declares a struct of settings, with its defaults and, as `SETTINGS`, the description of each setting.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)*)])?
                $field:ident: $type:ty = $default:expr, $kind:expr $(, option $option:literal)?;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)*)])?
                pub $field: $type,
            )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl $name {
            /// Describes every setting, in the order in which they are shown.
            pub const SETTINGS: &'static [crate::setting::Setting] = &[
                $(crate::setting::Setting {
                    name: stringify!($field),
                    doc: concat!($($doc, "\n"),+),
                    kind: $kind,
                    option: settings!(@option $($option)?),
                }),+
            ];
        }
    };
    (@option) => { None };
    (@option $option:literal) => { Some($option) };
}
pub(crate) use settings;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic_config::TopicConfig;

    #[test]
    fn a_declaration_gives_names_defaults_and_documentation() {
        let by_name = |name| TopicConfig::SETTINGS.iter().find(|setting| setting.name == name).unwrap();
        let visibility = by_name("visibility_timeout");
        assert!(visibility.summary().ends_with("Default `30s`."), "{}", visibility.summary());
        assert!(visibility.text().contains("\n\nSet it above"), "{}", visibility.text());
        assert_eq!(by_name("retry").kind.inner()[0].option, Some("max-attempts"));
        // What is absent in the defaults is declared so, and nothing else is.
        let defaults = serde_json::to_value(TopicConfig::default()).unwrap();
        for setting in TopicConfig::SETTINGS {
            if matches!(setting.kind, Kind::Maybe(_)) {
                assert_eq!(defaults.get(setting.name), None, "{}", setting.name);
            }
        }
    }
}
