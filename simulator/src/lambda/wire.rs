//! The bodies of `lambda`, as its specification has them.

use actix_web::http::StatusCode;
use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::exchange::Reply;
use crate::machine::{Phase, Record};
use crate::market::Row;

const MAX_NAME_CHARS: usize = 64;
const MAX_USER_DATA_BYTES: usize = 1_000_000;
const MAX_TAG_KEY_CHARS: usize = 55;
const MAX_TAG_VALUE_CHARS: usize = 128;
const MAX_HOSTNAME_CHARS: usize = 63;

/// An error body. The API asks callers to branch on `code` alone; the words are the simulator's.
pub(super) struct Error {
    status: StatusCode,
    code: &'static str,
    message: &'static str,
    suggestion: Option<&'static str>,
}

impl Error {
    pub(super) const INVALID_API_KEY: Self = Self {
        status: StatusCode::UNAUTHORIZED,
        code: "global/invalid-api-key",
        message: "The API key is not known.",
        suggestion: Some("Send the key of this account as a bearer token."),
    };
    pub(super) const NOT_FOUND: Self = Self {
        status: StatusCode::NOT_FOUND,
        code: "global/not-found",
        message: "There is nothing at this path.",
        suggestion: None,
    };
    pub(super) const NO_SUCH_INSTANCE: Self = Self {
        status: StatusCode::NOT_FOUND,
        code: "global/object-does-not-exist",
        message: "There is no such instance.",
        suggestion: None,
    };
    /// The specification has this code, though not for SSH keys.
    pub(super) const DUPLICATE: Self = Self {
        status: StatusCode::BAD_REQUEST,
        code: "global/duplicate",
        message: "The name is in use.",
        suggestion: None,
    };
    pub(super) const INSUFFICIENT_CAPACITY: Self = Self {
        status: StatusCode::BAD_REQUEST,
        code: "instance-operations/launch/insufficient-capacity",
        message: "No instance of this type is free in this region.",
        suggestion: Some("Try another region."),
    };
    /// The specification states the limits but not the body of a refusal.
    pub(super) const TOO_MANY_REQUESTS: Self = Self {
        status: StatusCode::TOO_MANY_REQUESTS,
        code: "global/too-many-requests",
        message: "Too many requests.",
        suggestion: None,
    };
    pub(super) const INTERNAL: Self = Self {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        code: "global/internal-error",
        message: "Something went wrong inside.",
        suggestion: Some("Try again later."),
    };

    pub(super) fn reply(&self) -> Reply {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(suggestion) = self.suggestion {
            error["suggestion"] = json!(suggestion);
        }
        Reply::new(self.status, json!({ "error": error }))
    }

    pub(super) fn invalid(why: String) -> Reply {
        let error = json!({ "code": "global/invalid-parameters", "message": why });
        Reply::new(StatusCode::BAD_REQUEST, json!({ "error": error }))
    }

    pub(super) fn no_such(what: &str, name: &str) -> Reply {
        let error = json!({
            "code": "global/object-does-not-exist",
            "message": format!("{what} {name} does not exist."),
            "suggestion": "Check the name.",
        });
        Reply::new(StatusCode::NOT_FOUND, json!({ "error": error }))
    }
}

/// `specs`, price and words of an instance type.
pub(super) fn instance_type(row: &Row) -> Value {
    json!({
        "name": row.sku,
        "description": format!("{}x {}", row.gpus, row.gpu_label),
        "gpu_description": row.gpu_label,
        // Whole cents: the market file and every change of a price must have them.
        "price_cents_per_hour": (row.price_usd_hour * Decimal::ONE_HUNDRED).to_u64(),
        "specs": {
            "vcpus": row.vcpus,
            "memory_gib": row.memory_gib,
            "storage_gib": row.storage_gib,
            "gpus": row.gpus,
        },
    })
}

pub(super) fn region(row: &Row) -> Value {
    json!({ "name": row.place, "description": row.place_label })
}

/// A tag as it is sent and returned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Tag {
    key: String,
    value: String,
}

impl Tag {
    fn is_valid(&self) -> bool {
        let mut key = self.key.chars();
        let first = key.next().is_some_and(|c| c.is_ascii_lowercase());
        let rest = key.as_str();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == ':';
        first
            && !rest.is_empty()
            && rest.chars().all(plain)
            && self.key.len() <= MAX_TAG_KEY_CHARS
            && self.value.chars().count() <= MAX_TAG_VALUE_CHARS
    }
}

/// The body of a launch. Fields that change nothing here (image, file systems, firewall) are ignored, as
/// unknown fields are.
#[derive(Debug, Deserialize)]
pub(super) struct LaunchBody {
    pub(super) region_name: String,
    pub(super) instance_type_name: String,
    pub(super) ssh_key_names: Vec<String>,
    pub(super) name: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) user_data: Option<String>,
    pub(super) tags: Option<Vec<Tag>>,
    quantity: Option<u32>,
}

impl LaunchBody {
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let body: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let too_long = |text: &Option<String>, most: usize| {
            text.as_ref()
                .is_some_and(|text| text.chars().count() > most)
        };
        if body.ssh_key_names.len() != 1 {
            return Err("ssh_key_names: exactly one name is required".to_owned());
        }
        if body.quantity.is_some_and(|quantity| quantity > 1) {
            return Err("quantity: one instance to a launch".to_owned());
        }
        if too_long(&body.name, MAX_NAME_CHARS) {
            return Err("name: 64 characters at most".to_owned());
        }
        if body
            .user_data
            .as_ref()
            .is_some_and(|data| data.len() > MAX_USER_DATA_BYTES)
        {
            return Err("user_data: 1 MB at most".to_owned());
        }
        if body
            .hostname
            .as_deref()
            .is_some_and(|hostname| !is_hostname(hostname))
        {
            return Err("hostname: lower case letters, digits and hyphens, 63 at most".to_owned());
        }
        if body.tags.iter().flatten().any(|tag| !tag.is_valid()) {
            return Err("tags: a key or a value is not allowed".to_owned());
        }
        Ok(body)
    }
}

fn is_hostname(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain)
        && text.len() <= MAX_HOSTNAME_CHARS
        && text.chars().all(|c| plain(c) || c == '-')
}

#[derive(Debug, Deserialize)]
pub(super) struct TerminateBody {
    pub(super) instance_ids: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Action {
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_code: Option<&'static str>,
}

/// An instance as it is listed. Fields that the machine does not have yet are absent, not null.
#[derive(Debug, Serialize)]
pub(super) struct InstanceView {
    id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_ip: Option<String>,
    /// Not in the specification: real machines answer at 22.
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh_port: Option<u16>,
    status: &'static str,
    ssh_key_names: Vec<String>,
    file_system_names: [String; 0],
    region: Value,
    instance_type: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jupyter_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jupyter_url: Option<String>,
    is_reserved: bool,
    actions: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<Value>,
}

impl InstanceView {
    pub(super) fn of(record: &Record, now: DateTime<Utc>) -> Self {
        let phase = record.phase(now);
        let host = record
            .hosts
            .first()
            .filter(|_| !matches!(phase, Phase::Booting | Phase::Gone));
        let hostname = |ip: &String| {
            record
                .order
                .hostname
                .clone()
                .unwrap_or_else(|| ip.replace('.', "-"))
        };
        let token = host.map(|_| record.id.chars().rev().collect::<String>());
        Self {
            id: record.id.clone(),
            name: record.order.name.clone(),
            ip: host.map(|host| host.public_ip.clone()),
            private_ip: host.map(|host| host.private_ip.clone()),
            ssh_port: host.map(|_| record.ssh_port),
            status: match phase {
                Phase::Booting => "booting",
                Phase::Running => "active",
                Phase::Failed => "unhealthy",
                Phase::Ending => "terminating",
                Phase::Gone => "terminated",
            },
            ssh_key_names: record.order.ssh_key_names.clone(),
            file_system_names: [],
            region: region(&record.row),
            instance_type: instance_type(&record.row),
            hostname: host.map(|host| hostname(&host.public_ip)),
            jupyter_url: token
                .as_ref()
                .map(|token| format!("https://jupyter.invalid/?token={token}")),
            jupyter_token: token,
            is_reserved: false,
            actions: actions(phase),
            tags: record.order.tags.clone(),
        }
    }

    pub(super) fn into_json(self) -> Value {
        json!(self)
    }
}

fn actions(phase: Phase) -> Value {
    let blocked = match phase {
        Phase::Booting => Some("vm-has-not-launched"),
        Phase::Running | Phase::Failed => None,
        Phase::Ending | Phase::Gone => Some("vm-is-terminating"),
    };
    let action = || Action {
        available: blocked.is_none(),
        reason_code: blocked,
    };
    let ended = matches!(phase, Phase::Ending | Phase::Gone);
    let terminate = Action {
        available: !ended,
        reason_code: blocked.filter(|_| ended),
    };
    json!({
        "migrate": action(),
        "rebuild": action(),
        "restart": action(),
        "cold_reboot": action(),
        "terminate": terminate,
    })
}
