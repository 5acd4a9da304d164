//! Request bodies: JSON, read strictly, with a problem document for each way to get it wrong.
//!
//! A body whose caller has to be known first is a [`LateBody`], one that may be known by its bytes an
//! [`UnreadBody`].
//!
//! Two things that the usual reader accepts are settled here: a name given twice in one object is refused,
//! and a whole number written as `3.0` is an integer, as JSON Schema defines it.

use std::fmt;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, Bytes};
use actix_web::{FromRequest, HttpRequest};
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::error::ApiError;
use crate::platform::json_fault;

/// The default limit for a body's size. Units: bytes.
const LIMIT_BYTES: usize = 256 * 1024;
/// How long a body may take to arrive: one that never comes would keep its connection for good.
const PATIENCE: Duration = Duration::from_secs(30);

/// A JSON body that fits `T` and has at most `LIMIT` bytes.
#[derive(Debug)]
pub(crate) struct Body<T, const LIMIT: usize = LIMIT_BYTES> {
    /// The parsed value.
    pub(crate) value: T,
    /// The bytes as they came, by which a repeated request is known.
    pub(crate) bytes: Bytes,
}

impl<T: DeserializeOwned + 'static, const LIMIT: usize> FromRequest for Body<T, LIMIT> {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let unread = UnreadBody::<LIMIT>::from_request(request, payload);
        Box::pin(async move {
            let UnreadBody(bytes) = unread.await?;
            Ok(Self {
                value: parse(&bytes)?,
                bytes,
            })
        })
    }
}

/// A JSON body whose bytes came and were not looked into: its handler may know them already.
#[derive(Debug)]
pub(crate) struct UnreadBody<const LIMIT: usize = LIMIT_BYTES>(Bytes);

impl<const LIMIT: usize> FromRequest for UnreadBody<LIMIT> {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let right_type = check_media_type(request);
        let payload = web::Payload::from_request(request, payload).into_inner();
        Box::pin(async move {
            right_type?;
            Ok(Self(read(payload.map_err(unreadable)?, LIMIT).await?))
        })
    }
}

impl<const LIMIT: usize> UnreadBody<LIMIT> {
    /// The bytes as they came.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads it into `T`.
    ///
    /// Errors: as [`parse`].
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        parse(&self.0)
    }
}

/// A JSON body that has not been read yet: its handler looks at the caller first.
pub(crate) struct LateBody(web::Payload);

impl FromRequest for LateBody {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        // A payload is taken over as it is, at once.
        let payload = web::Payload::from_request(request, payload).into_inner();
        let right_type = check_media_type(request);
        ready(right_type.and_then(|()| Ok(Self(payload.map_err(unreadable)?))))
    }
}

impl LateBody {
    /// Reads the body, as long as it has at most `limit` bytes.
    pub(crate) async fn read(self, limit: usize) -> Result<Bytes, ApiError> {
        read(self.0, limit).await
    }
}

/// No body, or an empty object.
#[derive(Debug)]
pub(crate) struct NoBody;

impl FromRequest for NoBody {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let payload = web::Payload::from_request(request, payload);
        Box::pin(async move {
            let bytes = read(payload.await.map_err(unreadable)?, LIMIT_BYTES).await?;
            let text = bytes.trim_ascii();
            if text.is_empty() || text == b"{}" {
                return Ok(Self);
            }
            Err(ApiError::invalid_body(
                "this call takes no body; send none, or `{}`",
            ))
        })
    }
}

fn check_media_type(request: &HttpRequest) -> Result<(), ApiError> {
    let sent = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = sent
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::unsupported_media_type(
        "send the body with `Content-Type: application/json`",
    ))
}

fn unreadable(error: actix_web::Error) -> ApiError {
    ApiError::invalid_json(format!("the body cannot be read: {error}"))
}

async fn read(payload: web::Payload, limit: usize) -> Result<Bytes, ApiError> {
    let too_slow = |_| {
        let seconds = PATIENCE.as_secs();
        ApiError::body_too_slow(format!(
            "the body took longer than {seconds} s to arrive; send it again"
        ))
    };
    // Takes memory for the bytes that came, not for the length that the request's head announces.
    let arrived = tokio::time::timeout(PATIENCE, payload.to_bytes_limited(limit));
    match arrived.await.map_err(too_slow)? {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(ApiError::invalid_json(format!(
            "the body broke off: {error}"
        ))),
        Err(_) => Err(ApiError::payload_too_large(format!(
            "the body of this call may have {limit} bytes; send a smaller one"
        ))),
    }
}

/// Reads JSON text into `T`.
///
/// Errors: `invalid_json` for text that is no JSON, `invalid_body` for JSON that does not fit.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let value = read_strictly(bytes).map_err(|error| {
        if error.is_data() {
            ApiError::invalid_body(error.to_string())
        } else {
            ApiError::invalid_json(format!("{error}; send one well-formed JSON value"))
        }
    })?;
    if !value.is_object() {
        return Err(ApiError::invalid_body("the body must be a JSON object"));
    }
    json_fault::read(value).map_err(ApiError::invalid_body)
}

/// Reads one JSON value; the module's head states its strict rules.
///
/// Errors: text that is no JSON, or a name given twice in one object.
pub(crate) fn read_strictly(bytes: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Distinguishes `null` from a field that is left out.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Reads any JSON value; the module's head states its strict rules.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // Below this every whole number is exactly itself as a floating-point number.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() < EXACT {
            return Ok(Value::from(value as i64));
        }
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(Strict)?;
            if object.contains_key(&name) {
                return Err(serde::de::Error::custom(format!(
                    "the field `{name}` is given twice"
                )));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use market::demand::{Counts, Demand};

    use super::*;

    fn refusal(text: &str) -> ApiError {
        parse::<Demand>(text.as_bytes()).expect_err("a refusal")
    }

    #[test]
    fn text_that_is_no_json_is_told_from_json_that_does_not_fit() {
        for text in ["", "{", "{\"kind\":}", "{} {}", "\u{feff}{}"] {
            assert_eq!(refusal(text).code(), "invalid_json", "{text}");
        }
        for text in ["{}", "[]", "7", r#"{"kind":"gpus"}"#, r#"{"kind":"other"}"#] {
            assert_eq!(refusal(text).code(), "invalid_body", "{text}");
        }
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error = refusal(r#"{"kind":"gpus","gpu":"H100","count":8,"colour":"red"}"#);
        assert!(error.to_string().contains("colour"), "{error}");
    }

    #[test]
    fn a_field_given_twice_is_refused_rather_than_the_last_one_believed() {
        let error = refusal(r#"{"kind":"gpus","gpu":"H100","count":8,"count":1}"#);
        assert!(error.to_string().contains("twice"), "{error}");
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        let text = br#"{"kind":"gpus","gpu":"H100","count":8.0}"#;
        let Ok(Demand::Gpus(demand)) = parse(text) else {
            panic!("a demand for GPUs")
        };
        assert_eq!(demand.count, Counts::exactly(8));
        assert_eq!(
            refusal(r#"{"kind":"gpus","gpu":"H100","count":8.5}"#).code(),
            "invalid_body"
        );
        assert_eq!(
            refusal(r#"{"kind":"gpus","gpu":"H100","count":1e300}"#).code(),
            "invalid_body"
        );
    }

    #[test]
    fn nesting_without_end_is_refused() {
        assert_eq!(refusal(&"[".repeat(100_000)).code(), "invalid_json");
    }
}
