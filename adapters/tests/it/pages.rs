//! Walks over the pages of a list: what is no page, and what is no end.

use adapters::http::{Answer, Next, Paging};
use adapters::{AdapterError, Http, Refusal};
use serde_json::{Value, json};

use crate::recorded::made_up;

const BY_CURSOR: Paging = Paging {
    records: "/items",
    total: "",
    size: ("limit", 2),
    next: Next::Cursor {
        parameter: "cursor",
        at: "/next",
    },
};

fn refusal(answer: &Answer) -> Refusal {
    Refusal::from_status(answer.status())
}

async fn walk(pages: &[(&str, Value)]) -> Result<Vec<Value>, AdapterError> {
    let exchanges: Vec<_> = pages
        .iter()
        .map(|(path, body)| ("GET", *path, 200, body.clone()))
        .collect();
    let http: Http = made_up(&exchanges);
    http.pages("/things", &BY_CURSOR, refusal).await?.whole()
}

#[tokio::test]
async fn a_cursor_leads_to_the_end_however_it_is_written() {
    for end in [json!(null), json!("")] {
        let pages = [
            (
                "/things?limit=2",
                json!({"items": [{"id": "a"}, {"id": "b"}], "next": "a+b/c="}),
            ),
            (
                "/things?limit=2&cursor=a%2Bb%2Fc=",
                json!({"items": [{"id": "c"}], "next": end}),
            ),
        ];
        assert_eq!(walk(&pages).await.expect("three").len(), 3);
    }
}

#[tokio::test]
async fn what_is_no_page_is_never_the_end_of_a_list() {
    for (what, page) in [
        (
            "a failure",
            json!({"status": false, "items": [], "message": "no access"}),
        ),
        (
            "a number",
            json!({"items": [{"id": "a"}, {"id": "b"}], "next": 17}),
        ),
        (
            "an object",
            json!({"items": [{"id": "a"}, {"id": "b"}], "next": {"page": 2}}),
        ),
        (
            "another path",
            json!({"items": [{"id": "a"}], "next": "x&limit=0"}),
        ),
        ("no list", json!({"records": []})),
        ("too many", json!({"items": [1, 2, 3]})),
    ] {
        let error = walk(&[("/things?limit=2", page)]).await.expect_err(what);
        assert!(
            matches!(error, AdapterError::Unreadable { .. }),
            "{what}: {error}"
        );
    }
}
