//! A request as a dialect reads it.

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::HeaderMap;
use actix_web::web::{Bytes, Query};
use serde::de::DeserializeOwned;

use crate::fields::Fields;
use crate::reply::Refusal;

/// A request to a provider.
#[derive(Clone)]
pub struct Request {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    sent_query: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
    /// The request below this base path; none for another path.
    pub(crate) fn below(base_path: &str, request: &HttpRequest, body: Bytes) -> Option<Self> {
        let path = request.path().strip_prefix(base_path)?;
        Some(Self {
            method: request.method().clone(),
            path: path.to_owned(),
            query: pairs(request.query_string()),
            sent_query: request.query_string().to_owned(),
            headers: request.headers().clone(),
            body,
        })
    }

    /// The same request with another method.
    pub(crate) fn with_method(&self, method: Method) -> Self {
        Self {
            method,
            ..self.clone()
        }
    }

    /// In capitals.
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// Below the base path, with the slash at its start.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path by its slashes; one at the end makes an empty last segment.
    pub fn segments(&self) -> Vec<&str> {
        self.path
            .strip_prefix('/')
            .unwrap_or(&self.path)
            .split('/')
            .collect()
    }

    /// A segment by its number from 0; empty where there is none.
    pub fn segment(&self, n: usize) -> &str {
        self.segments().get(n).copied().unwrap_or_default()
    }

    /// What follows the last slash.
    pub fn last_segment(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The first value of this name.
    pub fn query(&self, name: &str) -> Option<&str> {
        let named = self.query.iter().find(|(key, _)| key == name);
        named.map(|(_, value)| value.as_str())
    }

    /// The query as it was sent, with its question mark; empty without one.
    pub fn query_string(&self) -> String {
        let sent = self.sent_query.as_str();
        if sent.is_empty() {
            String::new()
        } else {
            format!("?{sent}")
        }
    }

    /// A header, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON of this type, or why it is not.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(&self.body).map_err(|error| Refusal::Invalid(error.to_string()))
    }

    /// The fields of a body that is a JSON object.
    ///
    /// Errors: [`Refusal::Invalid`].
    pub fn fields(&self) -> Result<Fields, Refusal> {
        Fields::parse(&self.body)
    }

    /// A field of a body that is a JSON object of texts or a form.
    pub fn field(&self, name: &str) -> Option<String> {
        if let Ok(body) = self.json::<serde_json::Value>() {
            return body[name].as_str().map(str::to_owned);
        }
        let form = pairs(std::str::from_utf8(&self.body).ok()?);
        form.into_iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }
}

/// The decoded pairs of a query or a form; none of a text that is neither.
fn pairs(text: &str) -> Vec<(String, String)> {
    Query::from_query(text).map_or_else(|_| Vec::new(), Query::into_inner)
}
