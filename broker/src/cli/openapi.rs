//! `broker openapi`: prints the OpenAPI document.

use super::Ending;
use super::text::print_line;
use crate::http::Document;

pub(super) fn run() -> Result<(), Ending> {
    Ok(print_line(Document::of_routes().text().trim_end())?)
}
