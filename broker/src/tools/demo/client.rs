//! A small client of our own API, so that the demo can do nothing that a user cannot.

use serde_json::Value;

/// The service's failure to do as asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// It could not be reached.
    #[error("the service did not answer")]
    Transport(#[from] reqwest::Error),
    /// It refused.
    #[error("{method} {path} was refused with {status}: {detail}")]
    Refused {
        method: &'static str,
        path: String,
        status: u16,
        detail: String,
    },
}

/// A client with a key.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    base_url: String,
    key: String,
}

impl Client {
    pub(super) fn new(base_url: &str, key: &str) -> Result<Self, CallError> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self {
            http,
            base_url: base_url.to_owned(),
            key: key.to_owned(),
        })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call("GET", path, self.http.get(self.url(path))).await
    }

    /// Every call that spends carries an idempotency key, so that repeating a step of the demo is harmless.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        let key = uuid::Uuid::now_v7().to_string();
        let request = self
            .http
            .post(self.url(path))
            .header("Idempotency-Key", key)
            .json(body);
        self.call("POST", path, request).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    async fn call(
        &self,
        method: &'static str,
        path: &str,
        request: reqwest::RequestBuilder,
    ) -> Result<Value, CallError> {
        let answer = request.bearer_auth(&self.key).send().await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.json().await?);
        }
        let problem: Value = answer.json().await.unwrap_or_default();
        let detail = problem["detail"]
            .as_str()
            .unwrap_or("no detail was given")
            .to_owned();
        Err(CallError::Refused {
            method,
            path: path.to_owned(),
            status: status.as_u16(),
            detail,
        })
    }
}
