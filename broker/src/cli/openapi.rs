//! `broker openapi`: prints the OpenAPI document.

use super::Ending;
use super::text::print_line;
use crate::http::document;

pub(super) fn run() -> Result<(), Ending> {
    Ok(print_line(document().text().trim_end())?)
}
