//! `broker openapi`: prints the OpenAPI document.

use std::io::Write as _;

use super::Ending;
use crate::http::Document;

pub(super) fn run() -> Result<(), Ending> {
    // A reader that goes away early, such as `head`, is no failure worth a panic.
    std::io::stdout().lock().write_all(Document::of_routes().text().as_bytes())?;
    Ok(())
}
