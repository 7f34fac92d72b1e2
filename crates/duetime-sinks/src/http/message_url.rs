//! The URL that each message of a topic goes to, where the topic's `url` makes it of what the message says.
//!
//! Upstream: `request`. Downstream: `allowed_url`, which decides whether it may be called.

use std::sync::Arc;

use duetime_core::{Delivery, TopicName};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use super::allowed_url::{AllowedUrls, StrictUrl};
use crate::template::Template;

/// What a value has of these is percent-encoded: no value ends its part of the path, or the host.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Stands for what only a message can say.
const UNKNOWN: &str = "x";

/// The URL that each message of a topic goes to.
#[derive(Debug)]
pub(super) struct MessageUrl {
    text: String,
    template: Template,
    allowed: Arc<AllowedUrls>,
    /// Messages may lead to different hosts: one that cannot be reached says nothing of the others.
    pub(super) has_many_hosts: bool,
}

impl MessageUrl {
    /// Checks as much of a topic's `url` as can be known without a message.
    ///
    /// # Errors
    ///
    /// A sentence with the fix.
    pub(super) fn new(text: &str, topic: &TopicName, allowed: Arc<AllowedUrls>) -> Result<Self, String> {
        let template = Template::parse(text).map_err(|fault| format!("url {fault}"))?;
        let beginning = template.beginning(topic);
        let begins_with_host = beginning.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?']));
        let has_many_hosts = template.varies() && !begins_with_host;
        if let Some(default) = template.whole_default() {
            let checked = StrictUrl::read(default).and_then(|url| allowed.check(&url));
            checked.map_err(|why| format!("the default in url is refused: {why}"))?;
        } else if !template.is_one_header() {
            let sample = StrictUrl::read(&template.of_topic(topic, |c| c, UNKNOWN));
            let checked = sample.and_then(|sample| match () {
                () if !template.varies() => allowed.check(&sample),
                () if has_many_hosts => Ok(()),
                () => allowed.check_host(&sample),
            });
            checked.map_err(|why| format!("url {text:?} is refused: {why}"))?;
        }
        Ok(Self { text: text.to_owned(), template, allowed, has_many_hosts })
    }

    /// What the path of `url` has that came with its message, as a whole and in parts. It may be secret.
    pub(super) fn brought(&self, url: &Url) -> Vec<String> {
        let parts = url.path().split('/').chain([url.path()]).filter(|part| !self.text.contains(part));
        let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        parts.flat_map(|part| [part.to_owned(), decoded(part)]).collect()
    }

    /// The URL for `message`.
    ///
    /// # Errors
    ///
    /// A sentence with the fix: a header is missing, or the URL may not be called.
    pub(super) fn of(&self, message: &Delivery) -> Result<Url, String> {
        let is_whole = self.template.is_one_header();
        let filled = self.template.fill_with(message, |out, value| {
            if is_whole { out.push_str(value) } else { out.extend(utf8_percent_encode(value, ENCODED)) }
        });
        let filled = filled.map_err(|missing| {
            format!("{missing}; send it, or write a default into `url` of the topic: {{header.NAME|DEFAULT}}")
        })?;
        let checked = StrictUrl::read(&filled).and_then(|url| self.allowed.check(&url).map(|()| url.url));
        checked
            .map_err(|why| format!("the URL of the message, by `url` {:?} of its topic, is refused: {why}", self.text))
    }
}
