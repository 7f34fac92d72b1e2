//! Topics that are made by their first message, as the configuration allows.
//!
//! Upstream: the enqueue of a message to a topic that is not there. Two first messages at two nodes make one topic: the
//! catalog creates what is absent, and changes nothing.

use std::sync::Arc;

use axum::http::StatusCode;
use duetime_core::{TopicName, TopicRecord};
use duetime_router::{RouteError, TopicChange};

use crate::auth::Caller;
use crate::json::problem::Problem;
use crate::routes::topics::to_its_end;
use crate::server::state::HttpParts;

/// The topic of a message; one that is not there is made, where the configuration and the token allow that.
pub(crate) async fn topic_of(
    app: &Arc<HttpParts>,
    topic: &TopicName,
    caller: &Caller,
) -> Result<Arc<TopicRecord>, Problem> {
    let unknown = match app.router.topic(topic).await {
        Ok(record) => return Ok(record),
        Err(unknown @ RouteError::UnknownTopic(_)) => unknown,
        Err(error) => return Err(error.into()),
    };
    let rules = &app.options.first_messages;
    let Some(config) = rules.settings_of(topic.as_str()) else { return Err(unknown.into()) };
    // One at a time, so that the bounds hold at this node; each other node may pass them by one.
    let _alone = app.options.making_topics.lock().await;
    let all = app.catalog.all();
    if let Some(made) = all.get(topic) {
        return Ok(made.clone());
    }
    if all.len() >= rules.topics_max {
        let detail = format!(
            "there are {} topics, and first messages make {} at most; delete some, or raise topics_default.topics_max",
            all.len(),
            rules.topics_max
        );
        return Err(Problem::new(StatusCode::FORBIDDEN, "too_many_topics", detail));
    }
    if caller.limits().max_topics.is_some() {
        caller.limits().check_topics(all.keys().filter(|name| caller.sees(name.as_str())).count())?;
    }
    let mut change = TopicChange::whole(config).by(caller.name());
    if caller.limits().ceilings.is_some() {
        change = caller.limits().ceilings.bound(change, None, |count| app.catalog.most_shards_of(count))?;
    }
    let made = to_its_end({
        let (app, topic) = (app.clone(), topic.clone());
        async move { app.catalog.create(&topic, &change).await }
    });
    let put = made.await??;
    if put.created {
        app.options.audit.topic_made(app.clock.now(), topic.as_str(), "topic of its first message");
        tracing::info!(%topic, "topic is created by its first message");
    }
    Ok(put.record)
}
