//! Things that an account has beside its machines, and that stay when a machine ends: SSH keys, start-up
//! scripts, volumes, environments.

use serde::Serialize;
use serde_json::Value;

use crate::Provider;
use crate::call::Call;
use crate::reply::Refusal;
use crate::request::Request;

/// A thing beside the machines of an account.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Thing {
    /// The provider.
    pub provider: Provider,
    /// The twin's word for its kind: `ssh_key`, `script`.
    pub kind: &'static str,
    /// The provider's id.
    pub id: String,
    /// The name given by the caller; may be empty.
    pub name: String,
    /// What else was given, in the form that the twin keeps it.
    pub body: Value,
}

/// A thing before it is there.
pub struct NewThing {
    /// May be empty.
    pub name: String,
    /// As [`Thing::body`] keeps it.
    pub body: Value,
}

/// The kind of an SSH key; its body is the public key.
pub const SSH_KEY: &str = "ssh_key";

/// Reads a new SSH key: `name` and `public_key`, both required, the name used once.
///
/// Errors: [`Refusal::Invalid`], [`Refusal::NameTaken`].
pub fn new_ssh_key(call: &Call<'_>, request: &Request) -> Result<NewThing, Refusal> {
    let fields = request.fields()?;
    let name = fields.short("name", 64)?;
    let body = Value::String(fields.short("public_key", 4096)?);
    if call.thing_named(SSH_KEY, &name).is_some() {
        return Err(Refusal::NameTaken);
    }
    Ok(NewThing { name, body })
}
