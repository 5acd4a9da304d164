//! Credentials that are exchanged for tokens with an end: OAuth 2.0, the grant of client credentials.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use crate::call::{Answer, Call};
use crate::reply::{Refusal, Reply};
use crate::request::Request;
use crate::route::Route;
use crate::state::{Caller, made_up};
use crate::twin::{Auth, Twin};
use crate::{Front, Operation, Provider};

/// A token that was given out.
pub(crate) struct Token {
    pub(crate) provider: Provider,
    pub(crate) text: String,
    pub(crate) caller: Caller,
    /// When it ends.
    pub(crate) until: DateTime<Utc>,
}

/// The exchange of a credential, if this is one.
pub(crate) fn route(twin: &Twin, request: &Request) -> Option<Route> {
    match twin.auth {
        Auth::ClientCredentials { path, .. }
            if request.method() == "POST" && request.path() == path =>
        {
            Some(Route::to(Operation::Token, give))
        }
        _ => None,
    }
}

/// Gives out a token for a client id and its secret, in JSON or in a form.
fn give(call: &mut Call<'_>, request: &Request) -> Answer {
    let Auth::ClientCredentials {
        lifetime_seconds, ..
    } = call.provider.twin().auth
    else {
        return Err(Refusal::NoSuchPath);
    };
    let field = |name| request.field(name).unwrap_or_default();
    let credential = format!("{}:{}", field("client_id"), field("client_secret"));
    let caller = call.state.holder(call.provider, &credential);
    if caller == Caller::Stranger || call.front == Some(Front::CredentialRefused) {
        return Err(Refusal::Unauthorized);
    }
    let text = made_up("token");
    call.world.tokens.push(Token {
        provider: call.provider,
        text: text.clone(),
        caller,
        until: call.now + TimeDelta::seconds(lifetime_seconds.into()),
    });
    Ok(Reply::ok(json!({
        "access_token": text,
        "expires_in": lifetime_seconds,
        "token_type": "Bearer",
    })))
}
