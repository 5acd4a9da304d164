//! SSH keys of `lambda`: a launch names one of them.

use actix_web::web::{Bytes, Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::wire::Error;
use super::{LAMBDA, data};
use crate::Operation;
use crate::exchange::{Kind, exchange};
use crate::state::State;

const MAX_NAME_CHARS: usize = 64;
const MAX_KEY_CHARS: usize = 4096;

/// A key as it is listed.
#[derive(Debug, Clone, Serialize)]
struct SshKey {
    id: String,
    name: String,
    public_key: String,
}

/// The keys of the account.
#[derive(Debug, Default)]
pub(crate) struct SshKeys {
    keys: Vec<SshKey>,
}

impl SshKeys {
    pub(super) fn has(&self, name: &str) -> bool {
        self.public_key(name).is_some()
    }

    /// The public key of this name.
    pub(super) fn public_key(&self, name: &str) -> Option<&str> {
        let mut keys = self.keys.iter();
        let key = keys.find(|key| key.name == name)?;
        Some(&key.public_key)
    }
}

#[derive(Debug, Deserialize)]
struct AddBody {
    name: String,
    public_key: Option<String>,
}

pub(super) async fn list(request: HttpRequest, state: Data<State>) -> HttpResponse {
    exchange(
        &LAMBDA,
        &request,
        &state,
        Kind::of(Operation::Keys),
        |call| data(json!(call.world.ssh_keys.keys)),
    )
    .await
}

pub(super) async fn add(request: HttpRequest, state: Data<State>, body: Bytes) -> HttpResponse {
    exchange(
        &LAMBDA,
        &request,
        &state,
        Kind::of(Operation::Keys),
        |call| {
            let AddBody { name, public_key } = match serde_json::from_slice(&body) {
                Ok(body) => body,
                Err(error) => return Error::invalid(error.to_string()),
            };
            if name.is_empty() || name.chars().count() > MAX_NAME_CHARS {
                return Error::invalid("name: 1 to 64 characters".to_owned());
            }
            if call.world.ssh_keys.has(&name) {
                return Error::DUPLICATE.reply();
            }
            let Some(public_key) =
                public_key.filter(|key| !key.is_empty() && key.chars().count() <= MAX_KEY_CHARS)
            else {
                return Error::invalid(
                    "public_key: required here, 4096 characters at most".to_owned(),
                );
            };
            let key = SshKey {
                id: call.world.new_uuid().simple().to_string(),
                name,
                public_key,
            };
            call.world.ssh_keys.keys.push(key.clone());
            data(json!(key))
        },
    )
    .await
}

pub(super) async fn remove(
    request: HttpRequest,
    state: Data<State>,
    id: Path<String>,
) -> HttpResponse {
    exchange(
        &LAMBDA,
        &request,
        &state,
        Kind::of(Operation::Keys),
        |call| {
            let keys = &mut call.world.ssh_keys.keys;
            let before = keys.len();
            keys.retain(|key| key.id != *id);
            if keys.len() == before {
                Error::NOT_FOUND.reply()
            } else {
                data(json!({}))
            }
        },
    )
    .await
}
