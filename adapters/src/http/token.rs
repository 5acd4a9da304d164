//! Access tokens of OAuth 2.0, kept until shortly before they expire.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::live::Live;
use super::{Call, Purpose, judge};
use crate::auth::Credential;
use crate::error::{AdapterError, Refusal};

/// How long before its end a token is no longer used.
const MARGIN: Duration = Duration::from_secs(60);
/// How long a token is used whose end is not given.
const USUAL: Duration = Duration::from_secs(300);
/// How long a token is used at most.
const LONGEST: Duration = Duration::from_secs(86_400);

/// A token that calls are made with.
pub(super) struct Token {
    pub(super) text: String,
    /// Whether it was fetched for this call.
    pub(super) is_fresh: bool,
}

/// The token of a connection.
#[derive(Default)]
pub(super) struct TokenKeeper(Mutex<Option<(String, Instant)>>);

impl std::fmt::Debug for TokenKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKeeper")
    }
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: Option<u64>,
}

impl TokenKeeper {
    /// The kept token, or one fetched from `path`. Two calls at once may fetch one each, and either is good.
    ///
    /// Errors: [`AdapterError::Refused`] where the credential is; else as a read, because nothing was ordered.
    pub(super) async fn token(
        &self,
        live: &Live,
        path: &str,
        credential: &Credential,
    ) -> Result<Token, AdapterError> {
        if let Some(text) = self.kept() {
            return Ok(Token {
                text,
                is_fresh: false,
            });
        }
        let call = Call {
            purpose: Purpose::Prepare,
            method: "POST",
            path: path.to_owned(),
            body: Some(json!({
                "grant_type": "client_credentials",
                "client_id": credential.field("client_id"),
                "client_secret": credential.field("client_secret"),
            })),
        };
        let secrets: Vec<String> = credential.values().map(str::to_owned).collect();
        // Never recorded: the answer is a secret as a whole.
        let answer = judge(&call, live.exchange(&call, Vec::new()).await?, &secrets)?;
        answer.accepted(|_| Refusal::Credential)?;
        let granted: Option<Granted> = answer.json().and_then(|it| serde_json::from_value(it).ok());
        // The parser's words would quote the token.
        let granted = granted.filter(|granted| !granted.access_token.is_empty());
        let Granted {
            access_token: text,
            expires_in,
        } = granted.ok_or_else(|| answer.unreadable("it grants no token".to_owned()))?;
        let lasts = expires_in.map_or(USUAL, Duration::from_secs).min(LONGEST);
        let until = Instant::now() + lasts.saturating_sub(MARGIN);
        *self.lock() = Some((text.clone(), until));
        Ok(Token {
            text,
            is_fresh: true,
        })
    }

    /// Drops a token that the provider refused, unless another one is kept by now.
    pub(super) fn forget(&self, token: &Token) {
        let mut kept = self.lock();
        if kept.as_ref().is_some_and(|(text, _)| *text == token.text) {
            *kept = None;
        }
    }

    fn kept(&self) -> Option<String> {
        let kept = self.lock();
        let good = kept.as_ref().filter(|(_, until)| Instant::now() < *until);
        good.map(|(text, _)| text.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
