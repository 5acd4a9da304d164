//! Names of certifications: one spelling for each, however it is written.
//!
//! The list is open: a name that is not known here is kept as it is written, in the same form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::string_schema;

/// The longest name. Units: characters, once it is normalised.
const LONGEST: usize = 64;

/// Names that are written in several ways, without the characters between letters and digits, and the one
/// spelling that is used here.
const KNOWN: [(&str, &str); 20] = [
    ("iso27001", "iso27001"),
    ("isoiec27001", "iso27001"),
    ("iso27017", "iso27017"),
    ("iso27018", "iso27018"),
    ("iso27701", "iso27701"),
    ("soc2type1", "soc2_type1"),
    ("soc2typei", "soc2_type1"),
    ("soc2type2", "soc2_type2"),
    ("soc2typeii", "soc2_type2"),
    ("hipaabaa", "hipaa_baa"),
    ("c5", "c5"),
    ("bsic5", "c5"),
    ("c5type1", "c5_type1"),
    ("c5type2", "c5_type2"),
    ("secnumcloud", "secnumcloud"),
    ("hds", "hds"),
    ("pcidss", "pci_dss"),
    ("fedrampmoderate", "fedramp_moderate"),
    ("fedramphigh", "fedramp_high"),
    ("tisax", "tisax"),
];

/// A text that names no certification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no certification; write its name such as `iso27001` or `soc2_type2`")]
pub struct InvalidCertification(String);

/// The name of a certification: small letters and digits, in words that `_` joins.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertificationName(String);

impl CertificationName {
    /// The name for this spelling: `ISO 27001` and `iso-27001` are `iso27001`.
    ///
    /// Errors: [`InvalidCertification`] for a text without a letter or digit, with others than
    /// ASCII ones, or too long.
    pub fn parse(text: &str) -> Result<Self, InvalidCertification> {
        let words = text.split([' ', '_', '-', '/', '.']);
        let words: Vec<_> = words
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_lowercase)
            .collect();
        let plain = |word: &String| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let name = words.join("_");
        if name.is_empty() || name.len() > LONGEST || !words.iter().all(plain) {
            return Err(InvalidCertification(text.chars().take(80).collect()));
        }
        let squeezed = words.concat();
        let known = KNOWN.iter().find(|(written, _)| *written == squeezed);
        Ok(Self(known.map_or(name, |(_, known)| (*known).to_owned())))
    }

    /// The name as it is kept.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CertificationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CertificationName {
    type Err = InvalidCertification;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

string_schema!(
    CertificationName,
    "CertificationName",
    "^[A-Za-z0-9 _./-]*[A-Za-z0-9][A-Za-z0-9 _./-]*$",
    64,
    "iso27001"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certification_has_one_name_however_it_is_written() {
        for (written, name) in [
            ("ISO 27001", "iso27001"),
            ("iso-27001", "iso27001"),
            ("ISO/IEC 27001", "iso27001"),
            ("SOC 2 Type II", "soc2_type2"),
            ("soc2_type2", "soc2_type2"),
            ("HIPAA BAA", "hipaa_baa"),
            ("BSI C5", "c5"),
            ("SecNumCloud", "secnumcloud"),
            ("PCI-DSS", "pci_dss"),
            // One that is not known here.
            ("Cyber  Essentials-Plus", "cyber_essentials_plus"),
        ] {
            let read = CertificationName::parse(written).expect("a name");
            assert_eq!(read.as_str(), name, "{written}");
            assert_eq!(CertificationName::parse(name), Ok(read));
        }
    }

    #[test]
    fn what_has_no_letter_or_strange_ones_or_too_many_is_no_name() {
        let long = "a".repeat(65);
        for text in ["", "--", "ISO\n27001", "ИСО 27001", long.as_str()] {
            assert!(CertificationName::parse(text).is_err(), "{text}");
        }
    }
}
