//! The fields of a JSON body, each with its rule. A field that is null counts as absent.

use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::reply::Refusal;

/// A body that is a JSON object. Fields that nobody reads are ignored.
#[derive(Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body.
    ///
    /// Errors: [`Refusal::Invalid`] for anything but an object.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let fields = serde_json::from_slice(body);
        fields
            .map(Self)
            .map_err(|error| Refusal::Invalid(error.to_string()))
    }

    fn some(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A field as it is; null where it is absent.
    #[must_use]
    pub fn value(&self, name: &str) -> Value {
        self.some(name).cloned().unwrap_or_default()
    }

    /// A text that is not empty.
    ///
    /// Errors: [`Refusal::Invalid`], also where it is absent.
    pub fn text(&self, name: &str) -> Result<String, Refusal> {
        let text = self.of::<String>(name)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| invalid(name, "a text is required"))
    }

    /// A text of 1 to `most` characters.
    ///
    /// Errors: [`Refusal::Invalid`], also where it is absent.
    pub fn short(&self, name: &str, most: usize) -> Result<String, Refusal> {
        self.optional(name, most)?;
        self.text(name)
    }

    /// A text of `most` characters, if there is one.
    ///
    /// Errors: [`Refusal::Invalid`] for a longer one, and for anything else.
    pub fn optional(&self, name: &str, most: usize) -> Result<Option<String>, Refusal> {
        match self.some(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.chars().count() <= most => Ok(Some(text.clone())),
            Some(_) => Err(invalid(name, &format!("a text of {most} characters"))),
        }
    }

    /// A text in Base64, if there is one.
    ///
    /// Errors: [`Refusal::Invalid`] for anything else.
    pub fn base64(&self, name: &str) -> Result<Option<String>, Refusal> {
        let encoded: Option<String> = self.of(name)?;
        let read =
            encoded.map(|text| decoded(&text).ok_or_else(|| invalid(name, "no text in Base64")));
        read.transpose()
    }

    /// A label of a host name ([`is_label`]) of `most` characters, if there is one.
    ///
    /// Errors: [`Refusal::Invalid`] for anything else.
    pub fn label(&self, name: &str, most: usize) -> Result<Option<String>, Refusal> {
        let label = self.optional(name, most)?;
        if label.iter().all(|label| is_label(label, most)) {
            return Ok(label);
        }
        Err(invalid(name, "small letters, digits and hyphens"))
    }

    /// A list as it is, each item of which passes; null where it is absent.
    ///
    /// Errors: [`Refusal::Invalid`] for anything else.
    pub fn list(&self, name: &str, passes: fn(&Value) -> bool) -> Result<Value, Refusal> {
        let list = self.of::<Vec<Value>>(name)?;
        if list.iter().flatten().all(passes) {
            return Ok(self.value(name));
        }
        Err(invalid(name, "one of them is not allowed"))
    }

    /// A list of texts; an absent one is empty.
    ///
    /// Errors: [`Refusal::Invalid`] for another number of them, and for anything else.
    pub fn texts(&self, name: &str, number: RangeInclusive<usize>) -> Result<Vec<String>, Refusal> {
        let texts: Vec<String> = self.of(name)?.unwrap_or_default();
        let fits = |texts: &Vec<String>| number.contains(&texts.len());
        Some(texts)
            .filter(fits)
            .ok_or_else(|| invalid(name, "too few or too many"))
    }

    /// A field of this type, if there is one.
    ///
    /// Errors: [`Refusal::Invalid`] for anything else.
    pub fn of<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let value = self.some(name).cloned().map(serde_json::from_value);
        value
            .transpose()
            .map_err(|error| invalid(name, &error.to_string()))
    }

    /// A whole number within this range, if there is one.
    ///
    /// Errors: [`Refusal::Invalid`] for another one, and for anything else.
    pub fn count(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, Refusal> {
        let Some(value) = self.some(name) else {
            return Ok(None);
        };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        match count.filter(|count| range.contains(count)) {
            Some(count) => Ok(Some(count)),
            None => Err(invalid(name, "no number that is possible here")),
        }
    }
}

/// Whether a text is a label of a host name: small letters, digits and hyphens, with no hyphen at its start, of
/// `most` characters.
#[must_use]
pub fn is_label(text: &str, most: usize) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_plain = text.starts_with(plain) && text.chars().all(|c| plain(c) || c == '-');
    is_plain && text.len() <= most
}

fn invalid(name: &str, rule: &str) -> Refusal {
    Refusal::Invalid(format!("{name}: {rule}"))
}

/// The text of this Base64; none for anything else.
#[must_use]
pub fn decoded(base64: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(base64).ok()?).ok()
}
