//! `/docs`: the OpenAPI document as one page to read.
//!
//! It is written here and not by a library for the browser, so that it needs neither scripts nor
//! another host: it works where the service works. Programs read `/openapi.json`.

use std::collections::BTreeMap;

use actix_web::http::header::{CONTENT_SECURITY_POLICY, ContentType};
use actix_web::{HttpResponse, get, web};
use serde_json::Value;

use super::document::Document;

/// Nothing is loaded from anywhere, this host included.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
    padding:0 1rem;color:#1a1a1a;background:#fff}code{font-family:ui-monospace,monospace}\
    section{border-top:1px solid #ccc;padding:.5rem 0}h3{margin:.5rem 0}dt{margin-top:.3rem}\
    nav a{margin-right:1rem;white-space:nowrap}b{display:inline-block;min-width:4.5rem}";

/// The page, written once.
#[derive(Debug)]
pub(super) struct Page(String);

impl Page {
    /// Writes the page of a document.
    pub(super) fn of(document: &Document) -> Self {
        Self(page(document.value()))
    }
}

/// This document, for people.
#[utoipa::path(
    tag = "plumbing",
    responses((status = 200, description = "A page", body = String, content_type = "text/html")),
    security(())
)]
#[get("/docs")]
pub(crate) async fn docs(page: web::Data<Page>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::html())
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .body(page.0.clone())
}

fn page(document: &Value) -> String {
    let mut by_tag: BTreeMap<&str, String> = BTreeMap::new();
    for (path, item) in fields(&document["paths"]) {
        for (method, operation) in fields(item) {
            let tag = text(&operation["tags"][0]);
            *by_tag.entry(tag).or_default() += &route(document, method, path, operation);
        }
    }
    let (mut links, mut routes) = (String::new(), String::new());
    for tag in document["tags"].as_array().into_iter().flatten() {
        let (name, what) = (text(&tag["name"]), escape(text(&tag["description"])));
        links += &format!("<a href=\"#{name}\">{name}</a>\n");
        let of_tag = by_tag.remove(name).unwrap_or_default();
        routes += &format!("<h2 id=\"{name}\">{name}</h2><p>{what}</p>\n{of_tag}");
    }
    let schemas: String = fields(&document["components"]["schemas"])
        .map(|(name, schema)| schema_section(name, schema))
        .collect();
    let (title, what) = (
        escape(text(&document["info"]["title"])),
        escape(text(&document["info"]["description"])),
    );
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><h1>{title}</h1><p>{what}</p>\
         <p>For programs: <a href=\"/openapi.json\">/openapi.json</a></p>\n\
         <nav>{links}<a href=\"#schemas\">schemas</a></nav>\n{routes}\
         <h2 id=\"schemas\">schemas</h2>\n{schemas}</body></html>\n"
    )
}

fn route(document: &Value, method: &str, path: &str, operation: &Value) -> String {
    let id = text(&operation["operationId"]);
    let mut inside = String::new();
    for words in [&operation["summary"], &operation["description"]] {
        inside += &paragraph(words);
    }
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let shared = text(&parameter["$ref"]).strip_prefix('#');
        let shared = shared.and_then(|way| document.pointer(way));
        let parameter = shared.unwrap_or(parameter);
        let must = parameter["required"] == true;
        let name = text(&parameter["name"]);
        inside += &field(name, must, &parameter["schema"], &parameter["description"]);
    }
    for (_, content) in fields(&operation["requestBody"]["content"]) {
        inside += &format!("<dt>body: {}</dt>", kind(&content["schema"]));
    }
    for (status, response) in fields(&operation["responses"]) {
        let body = fields(&response["content"]).map(|(_, content)| kind(&content["schema"]));
        let body = body.collect::<Vec<_>>().join(" or ");
        let what = escape(text(&response["description"]));
        inside += &format!("<dt>answers <code>{status}</code> {body}</dt><dd>{what}</dd>");
    }
    let (method, path) = (method.to_uppercase(), escape(path));
    format!(
        "<section id=\"{id}\"><h3><b>{method}</b><code>{path}</code></h3>\
         <dl>{inside}</dl></section>\n"
    )
}

fn schema_section(name: &str, schema: &Value) -> String {
    let must = |field: &str| {
        let required = schema["required"].as_array();
        required.is_some_and(|required| required.iter().any(|one| one == field))
    };
    let inside: String = fields(&schema["properties"])
        .map(|(name, value)| field(name, must(name), value, &value["description"]))
        .collect();
    let what = paragraph(&schema["description"]);
    let kind = kind(schema);
    format!(
        "<section id=\"schema-{name}\"><h3>{name}</h3>{what}<p>{kind}</p>\
         <dl>{inside}</dl></section>\n"
    )
}

fn field(name: &str, must: bool, schema: &Value, what: &Value) -> String {
    let (name, kind, what) = (escape(name), kind(schema), escape(text(what)));
    let must = if must { ", required" } else { "" };
    format!("<dt><code>{name}</code>: {kind}{must}</dt><dd>{what}</dd>")
}

/// The values that a schema takes, in a few words; named schemas are links.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|way| way.rsplit('/').next())
    {
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for joined in ["oneOf", "anyOf", "allOf"] {
        if let Some(parts) = schema[joined].as_array() {
            let word = if joined == "allOf" { " with " } else { " or " };
            return parts.iter().map(kind).collect::<Vec<_>>().join(word);
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words
            .iter()
            .map(|word| format!("<code>{}</code>", escape(&word.to_string())));
        return words.collect::<Vec<_>>().join(" or ");
    }
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join(" or "),
        Value::String(word) if word == "array" => format!("list of {}", kind(&schema["items"])),
        Value::String(word) => word.clone(),
        _ => "anything".to_owned(),
    }
}

fn paragraph(words: &Value) -> String {
    match text(words) {
        "" => String::new(),
        words => format!("<p>{}</p>", escape(words)),
    }
}

fn fields(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_route_and_every_schema() {
        let document = crate::http::document();
        let page = Page::of(&document).0;
        for (path, item) in fields(&document.value()["paths"]) {
            for (_, operation) in fields(item) {
                let id = text(&operation["operationId"]);
                assert!(page.contains(&format!("<section id=\"{id}\">")), "{path}");
            }
        }
        for (_, shared) in fields(&document.value()["components"]["parameters"]) {
            let what = escape(text(&shared["description"]));
            assert!(page.contains(&what), "{what}");
        }
        for (name, _) in fields(&document.value()["components"]["schemas"]) {
            assert!(
                page.contains(&format!("<section id=\"schema-{name}\">")),
                "{name}"
            );
        }
    }

    #[test]
    fn every_link_of_the_page_stays_on_this_host_and_leads_somewhere() {
        let page = Page::of(&crate::http::document()).0;
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("url("));
        for link in page.split("href=\"").skip(1) {
            let link = link.split('"').next().unwrap_or_default();
            match link.strip_prefix('#') {
                Some(id) => assert!(page.contains(&format!("id=\"{id}\"")), "{link}"),
                None => assert_eq!(link, "/openapi.json"),
            }
        }
    }

    #[test]
    fn words_of_the_document_are_no_markup() {
        let document = serde_json::json!({ "info": { "title": "<b>&\"" } });
        let page = page(&document);
        assert!(
            page.contains("<title>&lt;b&gt;&amp;&quot;</title>"),
            "{page}"
        );
    }
}
