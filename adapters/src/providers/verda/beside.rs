//! What stands beside a machine at Verda: its start-up script, its SSH keys, and a disk that outlived it.
//!
//! Keys and scripts are objects of the account. They are made for one order, under its mark, and are not needed
//! once its machine has come up.

use market::order::{Attachment, ClientToken, LeaseOrder};
use serde::Deserialize;
use serde_json::json;

use super::lease::{id_of, is_own_not_found};
use super::refusal_of;
use crate::error::AdapterError;
use crate::http::{Http, Purpose, segment};

const SCRIPTS: &str = "scripts";
const KEYS: &str = "ssh-keys";
const VOLUMES: &str = "volumes";

/// What was made for an order, by its ids.
pub(super) struct Made {
    pub(super) keys: Vec<String>,
    pub(super) script: Option<String>,
}

/// Makes the keys and the script of an order. What a failure leaves behind carries the mark of the order.
pub(super) async fn make(http: &Http, order: &LeaseOrder) -> Result<Made, AdapterError> {
    let token = order.client_token.as_str();
    let mut keys = Vec::with_capacity(order.ssh_public_keys.len());
    for (at, key) in order.ssh_public_keys.iter().enumerate() {
        let body = json!({ "name": format!("{token}-{}", at + 1), "key": key });
        let answer = http.post(Purpose::Prepare, "/ssh-keys", &body).await?;
        keys.push(id_of(&answer)?);
    }
    let mut script = None;
    if !order.startup_script.is_empty() {
        let body = json!({ "name": token, "script": order.startup_script });
        let answer = http.post(Purpose::Prepare, "/scripts", &body).await?;
        script = Some(id_of(&answer)?);
    }
    Ok(Made { keys, script })
}

pub(super) async fn list(http: &Http) -> Result<Vec<Attachment>, AdapterError> {
    let mut marked = Vec::new();
    for kind in [SCRIPTS, KEYS, VOLUMES] {
        let things: Vec<Thing> = http.get(&format!("/{kind}")).await?.read(refusal_of)?;
        // A disk that is attached ends with its machine.
        let is_left = |it: &Thing| kind != VOLUMES || it.status.as_deref() == Some("detached");
        marked.extend(things.into_iter().filter(is_left).filter_map(|thing| {
            Some(Attachment {
                kind: kind.to_owned(),
                client_token: mark_of(&thing.name)?,
                id: thing.id,
                region: None,
            })
        }));
    }
    Ok(marked)
}

pub(super) async fn remove(http: &Http, attachment: &Attachment) -> Result<(), AdapterError> {
    let path = format!("/{}/{}", attachment.kind, segment(&attachment.id)?);
    // Otherwise a disk stays in the trash for days.
    let for_good = json!({ "action": "delete", "id": [attachment.id], "is_permanent": true });
    let answer = match attachment.kind.as_str() {
        VOLUMES => http.put(Purpose::Release, "/volumes", &for_good).await?,
        _ => http.delete(&path).await?,
    };
    if is_own_not_found(&answer) {
        return Ok(());
    }
    answer.accepted(refusal_of)
}

/// The mark that a name begins with: keys have a number after it.
fn mark_of(name: &str) -> Option<ClientToken> {
    let end = name
        .char_indices()
        .filter(|(_, letter)| *letter == '-')
        .nth(1);
    let mark = end.map_or(name, |(end, _)| &name[..end]);
    mark.parse().ok()
}

// A script holds the one-time token, so it is not read.
#[derive(Debug, Deserialize)]
struct Thing {
    id: String,
    name: String,
    status: Option<String>,
}
