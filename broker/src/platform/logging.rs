//! The log of a process: its destinations and formats. `docs/logging.md` describes its contents.

use std::io::IsTerminal as _;

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

/// The filter when `RUST_LOG` is not set. The HTTP server logs callers that send no HTTP, or hang up, as
/// errors; they do not matter to an operator, so they are left out.
const USUAL: &str = "info,sqlx=warn,actix_server=warn,sea_orm_migration=warn,actix_http=off";

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// For people; in colour on a terminal.
    Text {
        /// Whether a terminal reads it.
        ansi: bool,
    },
    /// One JSON object a line, for programs.
    Json,
}

/// Logs to stderr from now on: by `RUST_LOG`, and as JSON with `BROKER_LOG=json`.
pub(crate) fn to_stderr() {
    // A second subscriber in one process changes nothing.
    let _ = registry()
        .with(filter())
        .with(lines(form(), std::io::stderr))
        .try_init();
}

/// The same as a layer beside others, which see more than is logged.
#[cfg(feature = "otel")]
pub(crate) fn filtered_lines<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    lines(form(), std::io::stderr).with_filter(filter())
}

fn form() -> Form {
    match std::env::var("BROKER_LOG").as_deref() {
        Ok("json") => Form::Json,
        _ => Form::Text {
            ansi: std::io::stderr().is_terminal(),
        },
    }
}

fn filter() -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(USUAL))
}

/// The writer of the lines.
fn lines<S, W>(form: Form, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = fmt::layer().with_writer(writer);
    match form {
        Form::Text { ansi } => lines.with_ansi(ansi).boxed(),
        // The fields of a line stand beside its message, those of its request under `span`.
        Form::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .boxed(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tracing::{error, info, info_span, subscriber};

    use super::*;

    /// Keeps the written text, for the test to read.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(form: Form, filter: &str, say: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = registry()
            .with(EnvFilter::new(filter))
            .with(lines(form, move || writer.clone()));
        subscriber::with_default(subscriber, say);
        let bytes = kept.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_line_of_json_holds_its_sentence_its_fields_and_its_request() {
        let text = logged(Form::Json, USUAL, || {
            let _request =
                info_span!("request", request.id = "req-1", http.route = "/v1/offers").entered();
            info!(offer.id = "off_1", elapsed_ms = 12, "Withdrew offer off_1");
        });
        let line: Value = serde_json::from_str(text.trim_end()).expect("one object a line");
        assert_eq!(line["message"], "Withdrew offer off_1");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["offer.id"], "off_1");
        assert_eq!(line["elapsed_ms"], 12);
        assert_eq!(line["span"]["request.id"], "req-1");
        assert_eq!(line["span"]["http.route"], "/v1/offers");
        assert!(line["timestamp"].is_string(), "{line}");
    }

    #[test]
    fn a_line_for_people_holds_the_same_without_colour_in_a_file() {
        let text = logged(Form::Text { ansi: false }, USUAL, || {
            let _request = info_span!("request", request.id = "req-1").entered();
            info!(offer.id = "off_1", "Withdrew offer off_1");
        });
        for word in [
            "Withdrew offer off_1",
            "offer.id=\"off_1\"",
            "request.id=\"req-1\"",
        ] {
            assert!(text.contains(word), "{word} in {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn what_callers_do_to_the_server_is_no_error_of_ours() {
        let say = || {
            error!(target: "actix_http::h1::dispatcher", "stream error: request parse error");
            error!("ours");
        };
        let text = logged(Form::Text { ansi: false }, USUAL, say);
        assert!(
            text.contains("ours") && !text.contains("stream error"),
            "{text}"
        );
        let asked_for = logged(Form::Text { ansi: false }, "info", say);
        assert!(asked_for.contains("stream error"), "{asked_for}");
    }
}
