//! `POST /v1/tokens`: trades an API key for a token of fifteen minutes.

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, post, web};
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::auth::Principal;
use super::body::NoBody;
use super::credential::sign_token;
use super::error::ApiError;
use crate::platform::app::Broker;
use crate::platform::keys::TOKEN_LIFETIME;

/// A token, good for fifteen minutes or until its key is revoked.
// It holds a secret, so it has no debug form.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Token {
    /// The token: a JWT signed with a key of `/.well-known/jwks.json`.
    access_token: String,
    /// `Bearer`
    token_type: String,
    /// For how many seconds it is good.
    #[schema(minimum = 1, maximum = 900)]
    expires_in: i64,
    /// Until when it is good.
    expires_at: DateTime<Utc>,
}

/// Trades the API key that the call is made with for a short-lived token.
#[utoipa::path(
    tag = "identity",
    responses((status = 201, description = "The token", body = Token))
)]
#[post("/v1/tokens")]
pub(crate) async fn trade_token(
    broker: web::Data<Broker>,
    who: Principal,
    _: NoBody,
) -> Result<HttpResponse, ApiError> {
    let key = who.shown_api_key()?;
    let pair = broker.keys().token();
    let signed = sign_token(&pair, key, who.own_tenant, who.grant, broker.now());
    let (access_token, expires_at) = signed.map_err(|error| ApiError::broken(&error))?;
    let token = Token {
        access_token,
        token_type: "Bearer".to_owned(),
        expires_in: TOKEN_LIFETIME.num_seconds(),
        expires_at,
    };
    Ok(HttpResponse::build(StatusCode::CREATED).json(token))
}
