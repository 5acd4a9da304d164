//! `broker openapi`: prints the OpenAPI document.

use crate::http::document;
use crate::terminal::ending::Ending;
use crate::terminal::text::print_line;

pub(super) fn run() -> Result<(), Ending> {
    Ok(print_line(document().text().trim_end())?)
}
