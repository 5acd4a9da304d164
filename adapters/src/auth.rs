//! How a provider knows who calls: the fields of a credential, and what is made of them in each call.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use crate::error::AdapterError;

/// One field of a provider's credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name, as the provider writes it: `client_id`.
    pub name: &'static str,
    /// The environment variable that its own tools read.
    pub variable: &'static str,
}

/// How calls are authenticated.
#[derive(Debug, Clone, Copy)]
pub enum Auth {
    /// Not at all.
    None,
    /// `Authorization: Bearer`, with the only field.
    Bearer,
    /// A header of its own, with the only field: `X-API-KEY`.
    Header(&'static str),
    /// OAuth 2.0 client credentials (RFC 6749, section 4.4): the fields `client_id` and `client_secret` are
    /// posted as JSON to this path, and the token in the answer is the bearer token until shortly before it
    /// expires.
    ClientCredentials(&'static str),
    /// Headers that this function makes for each call, such as a signature.
    Signed(Sign),
}

/// Makes the headers of a call from the credential.
pub type Sign = fn(&Unsigned<'_>, &Credential) -> Vec<(&'static str, String)>;

/// A call before it is signed.
#[derive(Debug, Clone, Copy)]
pub struct Unsigned<'a> {
    /// The method.
    pub method: &'static str,
    /// The path below the base URL, with the query.
    pub path: &'a str,
    /// The body; empty where there is none.
    pub body: &'a [u8],
    /// The time of the call. Units: seconds since 1970, UTC.
    pub unix_seconds: i64,
}

/// A credential of named fields. Its debug form shows their names alone.
#[derive(Clone, Default)]
pub struct Credential(BTreeMap<&'static str, SecretString>);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Credential {
    /// Reads a credential as it is entered: a provider's only field is the text itself, several are a JSON
    /// object of texts.
    ///
    /// Errors: [`AdapterError::BadConnection`], which names the fields and shows nothing of the text.
    pub fn read(fields: &'static [Field], text: &SecretString) -> Result<Self, AdapterError> {
        let text = text.expose_secret();
        if let [only] = fields {
            let value = SecretString::from(text.to_owned());
            return Ok(Self(BTreeMap::from([(only.name, value)])));
        }
        let bad = || {
            let names: Vec<_> = fields.iter().map(|field| field.name).collect();
            let names = names.join("`, `");
            AdapterError::BadConnection(format!(
                "the credential is a JSON object of the texts `{names}`, and of nothing else"
            ))
        };
        let mut given: BTreeMap<String, String> = serde_json::from_str(text).map_err(|_| bad())?;
        let mut known = BTreeMap::new();
        for field in fields {
            let value = given.remove(field.name).filter(|value| !value.is_empty());
            known.insert(field.name, SecretString::from(value.ok_or_else(bad)?));
        }
        match given.is_empty() {
            true => Ok(Self(known)),
            false => Err(bad()),
        }
    }

    /// A field; empty where there is none.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.expose_secret())
    }

    /// The only field.
    pub(crate) fn only(&self) -> &str {
        self.values().next().unwrap_or("")
    }

    /// Every value, for keeping them out of what is shown.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|value| value.expose_secret())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Field] = &[
        Field {
            name: "client_id",
            variable: "ACME_CLIENT_ID",
        },
        Field {
            name: "client_secret",
            variable: "ACME_CLIENT_SECRET",
        },
    ];

    fn read(fields: &'static [Field], text: &str) -> Result<Credential, String> {
        Credential::read(fields, &text.to_owned().into()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_single_field_is_the_text_itself_whatever_it_holds() {
        let file = "{\"type\": \"key\"}\nand more";
        let credential = read(&TWO[..1], file).expect("a credential");
        assert_eq!(
            (credential.field("client_id"), credential.only()),
            (file, file)
        );
    }

    #[test]
    fn several_fields_are_a_json_object_of_exactly_these() {
        let good = r#"{"client_secret": "two\nlines", "client_id": "one"}"#;
        let credential = read(TWO, good).expect("a credential");
        assert_eq!(credential.field("client_id"), "one");
        assert_eq!(credential.field("client_secret"), "two\nlines");
        assert_eq!(
            format!("{credential:?}"),
            r#"["client_id", "client_secret"]"#
        );
        for bad in [
            "one:two-hunter2",
            r#"{"client_id": "hunter2"}"#,
            r#"{"client_id": "hunter2", "client_secret": ""}"#,
            r#"{"client_id": "hunter2", "client_secret": "b", "scope": "c"}"#,
            r#"{"client_id": "hunter2", "client_secret": 7}"#,
        ] {
            let error = read(TWO, bad).expect_err(bad);
            assert!(error.contains("`client_id`, `client_secret`"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
