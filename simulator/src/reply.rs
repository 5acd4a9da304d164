//! An answer before it is written, and the refusals that every provider has in its own words.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_TYPE;
use serde_json::Value;

/// An answer: a status, a body or none, and headers.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    status: u16,
    body: Body,
    headers: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Body {
    None,
    Json(Value),
    Text(String),
}

impl Reply {
    const fn of(status: u16, body: Body) -> Self {
        Self {
            status,
            body,
            headers: Vec::new(),
        }
    }

    /// A JSON body.
    pub const fn new(status: u16, body: Value) -> Self {
        Self::of(status, Body::Json(body))
    }

    /// 200 with a JSON body.
    pub const fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    /// Plain text, which is no JSON.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self::of(status, Body::Text(body.into()))
    }

    /// No body.
    pub const fn empty(status: u16) -> Self {
        Self::of(status, Body::None)
    }

    /// The same answer with one more header.
    pub fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }

    /// Writes the answer; `whole` is false where its body ends in the middle.
    pub fn write(self, whole: bool) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponse::build(status);
        for header in self.headers {
            response.insert_header(header);
        }
        let (kind, mut text) = match self.body {
            Body::None => return response.finish(),
            Body::Json(body) => ("application/json", body.to_string()),
            Body::Text(text) => ("text/plain; charset=utf-8", text),
        };
        if !whole {
            text.truncate(text.floor_char_boundary(text.len() / 2));
        }
        response.insert_header((CONTENT_TYPE, kind)).body(text)
    }
}

/// The same JSON without fields that are null, at any depth.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// An object of these records, each under the text at this JSON pointer in it.
pub fn by_name(records: Vec<Value>, pointer: &str) -> Value {
    let named = records.into_iter().map(|record| {
        let name = record.pointer(pointer).and_then(Value::as_str);
        (name.unwrap_or("odd").to_owned(), record)
    });
    Value::Object(named.collect())
}

/// Why a call is refused, before the dialect words it.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// The credential is missing, unknown or expired.
    Unauthorized,
    /// Nothing is at this path.
    NoSuchPath,
    /// Another method is known at this path, and the provider says so ([`crate::kit::Twin::knows_methods`]).
    NotAllowed,
    /// Calls, or launches, came too fast.
    TooManyRequests,
    /// The provider has a fault.
    Internal,
    /// No machine has this id, or it is gone.
    NoSuchMachine,
    /// No thing beside the machines has this id.
    NoSuchThing,
    /// Nothing of this name is sold anywhere.
    UnknownSku,
    /// There is no such place.
    UnknownPlace,
    /// A launch names an SSH key, or another thing, that is not there.
    UnknownKey,
    /// Too few nodes are free there.
    SoldOut,
    /// Another thing of this kind has the name.
    NameTaken,
    /// A machine that boots cannot be ended yet.
    NotYet,
    /// The request breaks a rule, in words.
    Invalid(String),
    /// Already in the provider's words.
    Own(Reply),
}

/// Refuses a request that breaks a rule, which is given in words.
///
/// Errors: [`Refusal::Invalid`] unless it `holds`.
pub fn require(holds: bool, rule: &str) -> Result<(), Refusal> {
    if holds {
        return Ok(());
    }
    Err(Refusal::Invalid(rule.to_owned()))
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        Self::Own(reply)
    }
}

impl Refusal {
    /// The usual status.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) | Self::SoldOut | Self::NameTaken | Self::NotYet => 400,
            Self::Unauthorized => 401,
            Self::NoSuchPath
            | Self::NoSuchMachine
            | Self::NoSuchThing
            | Self::UnknownSku
            | Self::UnknownPlace
            | Self::UnknownKey => 404,
            Self::NotAllowed => 405,
            Self::TooManyRequests => 429,
            Self::Internal => 500,
            Self::Own(reply) => reply.status,
        }
    }

    /// The simulator's words.
    pub fn words(&self) -> &str {
        match self {
            Self::Unauthorized => "The credential is not known.",
            Self::NoSuchPath => "There is nothing at this path.",
            Self::NotAllowed => "Method not allowed",
            Self::TooManyRequests => "Too many requests.",
            Self::Internal => "Something went wrong inside.",
            Self::NoSuchMachine => "There is no such instance.",
            Self::NoSuchThing => "There is no such object.",
            Self::UnknownSku => "There is no such type.",
            Self::UnknownPlace => "There is no such region.",
            Self::UnknownKey => "There is no such SSH key.",
            Self::SoldOut => "Nothing of this type is free here.",
            Self::NameTaken => "The name is in use.",
            Self::NotYet => "The instance cannot be ended while it starts.",
            Self::Invalid(why) => why,
            Self::Own(_) => "",
        }
    }
}
