//! Whether a provider answers: it is read once, and nothing is kept of it.

use actix_web::{post, web};
use market::ids::ProviderId;
use serde::Deserialize;

use super::change::GivenCredential;
use super::{find, unknown};
use crate::flow::providers::{CheckedProvider, adapter_of, check, connect_entered};
use crate::http::access::WriteProviders;
use crate::http::auth::May;
use crate::http::body::Body;
use crate::http::error::ApiError;
use crate::platform::app::Broker;

/// The credential for a check.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckProvider {
    /// A credential to try before it is entered; the one in use by default.
    #[serde(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 4_096, write_only)]
    credential: Option<GivenCredential>,
    /// In a simulation alone, with a credential: where on this machine its interface is.
    #[serde(default)]
    #[schema(max_length = 2_000)]
    base_url: Option<String>,
}

/// Reads once our account's machines at a provider and its catalogue, and returns the findings or the
/// trouble.
///
/// The audit log keeps only the call and the caller. A provider that does not answer well is no problem of
/// this call: the answer reports it.
#[utoipa::path(
    tag = "providers",
    params(("id" = ProviderId, Path, description = "The provider")),
    request_body = CheckProvider,
    responses((status = 200, description = "What was found", body = CheckedProvider))
)]
#[post("/v1/providers/{id}/check")]
pub(crate) async fn check_provider(
    broker: web::Data<Broker>,
    who: May<WriteProviders>,
    id: web::Path<ProviderId>,
    body: Body<CheckProvider>,
) -> Result<web::Json<CheckedProvider>, ApiError> {
    let (asked, id) = (&body.value, id.into_inner());
    let checked = if let Some(GivenCredential(credential)) = &asked.credential {
        let adapter = adapter_of(id.as_str()).map_err(|_| unknown(&id))?;
        let known = broker.store().providers().find(&id).await?;
        let known = known.and_then(|row| row.base_url);
        let base_url = asked.base_url.as_deref().or(known.as_deref());
        let link = connect_entered(adapter, credential, base_url, broker.mode())?;
        check(&link, broker.now()).await
    } else {
        if asked.base_url.is_some() {
            return Err(ApiError::invalid_body(
                "`base_url` goes with a `credential`; give both, or none",
            ));
        }
        find(&broker, &who, &id).await?;
        let link = broker.provider(&id).ok_or_else(|| {
            ApiError::provider_not_connected(format!(
                "there is no connection to {id}; send a `credential` to try, or add it with POST /v1/providers"
            ))
        })?;
        check(&link, broker.now()).await
    };
    Ok(web::Json(checked))
}
