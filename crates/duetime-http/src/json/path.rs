//! Names in a path, decoded once and checked.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use duetime_core::{MessageId, NameError, TopicName};
use serde::de::DeserializeOwned;

use crate::json::problem::{Problem, Refusal};

/// `{topic}` of the path.
pub(crate) struct Topic(pub TopicName);

/// `{topic}` and `{id}` of the path.
pub(crate) struct TopicAndId(pub TopicName, pub MessageId);

async fn decoded<T: DeserializeOwned + Send, S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<T, Problem> {
    let Path(names) = Path::<T>::from_request_parts(parts, state).await.map_err(|error| {
        Problem::bad("invalid_path", format!("{}; percent-encode UTF-8 in the path", error.body_text()))
    })?;
    Ok(names)
}

fn topic(text: &str) -> Result<TopicName, Problem> {
    TopicName::new(text).map_err(|error| Problem::bad("invalid_topic_name", error.to_string()).at("topic"))
}

/// The parameter `topic` of a query.
pub(crate) fn read_topic(text: &str) -> Result<Option<TopicName>, String> {
    TopicName::new(text).map(Some).map_err(|error| error.to_string())
}

/// What is wrong with an id.
pub(crate) fn refuse_id(error: &NameError) -> Refusal {
    Refusal::new("invalid_id", error.to_string()).at("id")
}

impl<S: Send + Sync> FromRequestParts<S> for Topic {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let name: String = decoded(parts, state).await?;
        Ok(Self(topic(&name)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TopicAndId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let (name, id): (String, String) = decoded(parts, state).await?;
        Ok(Self(topic(&name)?, MessageId::new(&id).map_err(|error| refuse_id(&error))?))
    }
}

/// The parameters of a query, each at most once and none that is not known.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query that may have the parameters `known`.
    pub fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let uri = format!("/?{}", query.unwrap_or_default());
        let uri: axum::http::Uri =
            uri.parse().map_err(|_| Problem::bad("invalid_query", "the query cannot be read"))?;
        let axum::extract::Query(pairs) = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri)
            .map_err(|error| Problem::bad("invalid_query", error.body_text()))?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let refusal = crate::json::fields::unknown_field(name, known);
                return Err(Problem::bad("unknown_parameter", refusal.detail.replace("field", "parameter")).at(name));
            }
            if pairs[..at].iter().any(|(before, _)| before == name) {
                return Err(Problem::bad("invalid_query", format!("{name} is given twice; give it once")).at(name));
            }
        }
        Ok(Self(pairs))
    }

    /// The parameter `name`, which is `true` or `false`; false where it is not given.
    pub fn flag(&self, name: &str) -> Result<bool, Problem> {
        self.get(name, false, |text| text.parse().map_err(|_| "give true or false".to_owned()))
    }

    /// The parameter `name`, read by `parse`, or `default`.
    pub fn get<T>(&self, name: &str, default: T, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Problem> {
        match self.0.iter().find(|(given, _)| given == name) {
            None => Ok(default),
            Some((_, text)) => {
                parse(text).map_err(|error| Problem::bad("invalid_query", format!("{name}: {error}")).at(name))
            }
        }
    }
}
