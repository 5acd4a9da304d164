//! `broker attestation verify`: verifies a signed attestation, without a network.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{ArgGroup, Args, Subcommand};
use market::attestation::{Attestation, Finding, Outcome, Weight};
use serde::Deserialize;
use verifier::attest::verify_attestation;
use verifier::jws::{JwsError, PublicKey};

use crate::terminal::colour::Colours;
use crate::terminal::ending::Ending;
use crate::terminal::table::table;
use crate::terminal::text::{clean, hanging, print_line, print_text};

/// A larger file is no attestation. Units: bytes.
const LARGEST_FILE: u64 = 4 << 20;

#[derive(Debug, Subcommand)]
pub(super) enum AttestationCommand {
    Verify(VerifyArgs),
}

/// Verifies a signed attestation with the broker's published key; no server, no network.
///
/// Exit status: 0 the signature is valid and a real machine passed, 1 otherwise, 2 wrong input.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("published").args(["jwks", "key"]).required(true))]
pub(super) struct VerifyArgs {
    /// The attestation: a compact JWS, or the reply of `GET /v1/attestations/{id}`
    file: PathBuf,
    /// The published keys, as served at `/.well-known/jwks.json`
    #[arg(long, value_name = "FILE")]
    jwks: Option<PathBuf>,
    /// The published key itself: the `x` of its JWK, 43 characters of base64url
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Accept the attestation of a simulated node, which proves nothing about a real machine
    #[arg(long)]
    allow_simulated: bool,
    /// Accept a recheck of a node in use, which tests no memory and measures no rates
    #[arg(long)]
    allow_recheck: bool,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

/// The reply of the API, as far as it is needed here.
#[derive(Deserialize)]
struct Answered {
    jws: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Jwk>,
}

/// A published key; RFC 8037. Unknown members are ignored, as RFC 7517 requires.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    x: Option<String>,
    purpose: Option<String>,
}

impl Jwk {
    /// Whether this key may sign attestations and has this key id.
    fn may_have_signed(&self, kid: &str) -> bool {
        let attests = self
            .purpose
            .as_deref()
            .is_none_or(|purpose| purpose == "attestation");
        let ed25519 = self.kty == "OKP" && self.crv.as_deref() == Some("Ed25519");
        attests && ed25519 && self.kid.as_deref() == Some(kid)
    }
}

/// The part of a header that names the key. It is trusted only once the signature is verified.
#[derive(Deserialize)]
struct Names {
    kid: String,
}

pub(super) fn run(command: AttestationCommand) -> Result<(), Ending> {
    let AttestationCommand::Verify(args) = command;
    let jws = jws_in(&read(&args.file)?, &args.file)?;
    let attestation = key_for(&args, &jws)?
        .and_then(|key| verify_attestation(&jws, &key).map_err(|error| error.to_string()));
    let told = match &attestation {
        Ok(attestation) => judged(attestation, &args),
        Err(why) => Err(format!("{why}; do not rely on it")),
    };
    if args.json {
        let document = attestation.as_ref().ok();
        let line = serde_json::json!({
            "signature_holds": document.is_some(),
            "passed": told.is_ok(),
            "why_not": told.as_ref().err(),
            "attestation": document,
        });
        print_line(&line.to_string())?;
    } else if let Ok(attestation) = &attestation {
        print_line("The signature is valid.")?;
        print_text(&in_words(attestation))?;
    }
    told.map_err(Ending::No)
}

fn read(path: &Path) -> Result<String, Ending> {
    let unreadable =
        |why: String| Ending::wrong_input(format!("{} cannot be read: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if size.len() > LARGEST_FILE {
        return Err(unreadable(format!(
            "it has {} bytes, which is no attestation",
            size.len()
        )));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}

/// The signed document in a file.
fn jws_in(text: &str, path: &Path) -> Result<String, Ending> {
    let text = text.trim();
    let jws = match text.starts_with('{') {
        true => serde_json::from_str::<Answered>(text)
            .ok()
            .map(|answered| answered.jws),
        false => Some(text.to_owned()),
    };
    jws.filter(|jws| jws.split('.').count() == 3)
        .ok_or_else(|| {
            Ending::wrong_input(format!(
                "{} is neither a compact JWS nor an answer of GET /v1/attestations/{{id}}",
                path.display()
            ))
        })
}

/// The key that signed the document; if there is none, the reason in words.
fn key_for(args: &VerifyArgs, jws: &str) -> Result<Result<PublicKey, String>, Ending> {
    let no_key = |error: JwsError| Ending::wrong_input(format!("{error}; give the `x` of its JWK"));
    if let Some(key) = &args.key {
        return PublicKey::parse(key).map(Ok).map_err(no_key);
    }
    let Some(path) = &args.jwks else {
        return Err(Ending::wrong_input(
            "give the published key with --jwks FILE or --key KEY",
        ));
    };
    let set: KeySet = serde_json::from_str(&read(path)?).map_err(|error| {
        Ending::wrong_input(format!(
            "{} is no JSON Web Key Set: {error}",
            path.display()
        ))
    })?;
    let header = jws.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    let Ok(Names { kid }) = serde_json::from_slice(&header) else {
        return Ok(Err(
            "the document does not say which key signed it".to_owned()
        ));
    };
    let key = set.keys.iter().find(|key| key.may_have_signed(&kid));
    match key.and_then(|key| key.x.as_deref()) {
        Some(x) => PublicKey::parse(x).map(Ok).map_err(no_key),
        None => Ok(Err(
            "none of the keys given signs attestations under its name".to_owned(),
        )),
    }
}

/// Checks that the document says a real machine passed; if not, the reason in words.
fn judged(attestation: &Attestation, args: &VerifyArgs) -> Result<(), String> {
    if !attestation.verdict.is_pass() {
        return Err(format!(
            "the signature is valid, and the node's verdict is {}",
            attestation.verdict
        ));
    }
    if attestation.recheck && !args.allow_recheck {
        return Err(
            "the signature is valid, but this is a recheck of a node in use: it tests no memory and measures \
             no rates, as the attestation at the hand-off does (--allow-recheck accepts it)"
                .to_owned(),
        );
    }
    if attestation.simulated && !args.allow_simulated {
        return Err(
            "the signature is valid, but the node was simulated: it proves nothing about any \
                    real machine (--allow-simulated accepts it)"
                .to_owned(),
        );
    }
    Ok(())
}

/// The serialised name of a unit variant.
fn word(value: impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    let word = value.and_then(|value| Some(value.as_str()?.to_owned()));
    word.unwrap_or_default()
}

/// The measured figures beside the accepted floor and the usual value; empty without measurements.
fn figures(findings: &[Finding]) -> String {
    let rows: Vec<_> = findings
        .iter()
        .filter(|found| found.measured.is_some())
        .map(|found| {
            let figure =
                |figure: Option<i64>| figure.map_or("-".to_owned(), |figure| figure.to_string());
            vec![
                found.code.to_string(),
                figure(found.measured),
                figure(found.floor),
                figure(found.expected),
                found.unit.map(word).unwrap_or_default(),
                word(found.outcome),
            ]
        })
        .collect();
    match rows.is_empty() {
        true => String::new(),
        false => {
            table(
                &["check", "measured", "floor", "expected", "unit", "outcome"],
                rows,
            ) + "\n"
        }
    }
}

/// One finding: its code, outcome, whether it counts, the remedy and the figures.
fn finding_in_words(found: &Finding) -> String {
    let mut words = vec![word(found.outcome)];
    if found.weight == Weight::Shadow {
        words.push("tried out, decides nothing".to_owned());
    }
    words.extend(found.remedy.map(word));
    let figures = [
        ("measured", found.measured),
        ("floor", found.floor),
        ("expected", found.expected),
    ];
    let figures = figures.into_iter();
    let figures: Vec<String> = figures
        .filter_map(|(what, figure)| Some(format!("{what} {}", figure?)))
        .collect();
    let figures = match (figures.is_empty(), found.unit) {
        (true, _) => String::new(),
        (false, None) => format!(" ({})", figures.join(", ")),
        (false, Some(unit)) => {
            let unit = word(unit);
            format!(" ({}; {unit})", figures.join(", "))
        }
    };
    format!("{}. {}{figures}", words.join(", "), found.note)
}

/// An attestation for people: measurements first, limits last. Many texts come from the machine
/// and are untrusted.
pub(super) fn in_words(attestation: &Attestation) -> String {
    let expected = &attestation.expected;
    let host = attestation.host.as_deref();
    let host = host.unwrap_or("an address that was never told");
    let colours = Colours::of_stdout();
    let mut text = format!(
        "{}: {} (level {}, {})\n{} x {} at {}, node {} of {}\n",
        attestation.id,
        colours.state(attestation.verdict.as_str()),
        attestation.level.as_str(),
        attestation.measured_at.to_rfc3339(),
        expected.gpus,
        expected.gpu.name(),
        clean(host),
        attestation.node_index,
        attestation.lease_id,
    );
    if attestation.simulated {
        text.push_str("SIMULATED: it proves nothing about any real machine.\n");
    }
    if attestation.recheck {
        text.push_str("A RECHECK of a node in use: it tests no memory and measures no rates.\n");
    }
    text.push_str(&figures(&attestation.findings));
    let met = |outcome: Outcome| matches!(outcome, Outcome::Met | Outcome::Noted);
    for found in attestation
        .findings
        .iter()
        .filter(|found| !met(found.outcome))
    {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}",
            hanging(
                &format!("{}: ", found.code),
                &clean(&finding_in_words(found))
            )
        );
    }
    text.push_str(&colours.heading("It does not prove:"));
    text.push('\n');
    for limit in &attestation.what_this_does_not_prove {
        let _ = writeln!(text, "{}", hanging("- ", &clean(limit)));
    }
    text.trim_end().to_owned()
}
