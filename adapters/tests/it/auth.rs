//! How calls are authenticated, and that nothing of it is shown.

use adapters::auth::{Auth, Credential, Field, Unsigned};
use adapters::http::{Answer, Purpose};
use adapters::{AdapterError, Http, HttpConfig, Refusal};
use serde_json::{Value, json};

use crate::server::{Server, Turn};

const KEY: &[Field] = &[Field {
    name: "api_key",
    variable: "ACME_API_KEY",
}];

const CLIENT: &[Field] = &[
    Field {
        name: "client_id",
        variable: "ACME_CLIENT_ID",
    },
    Field {
        name: "client_secret",
        variable: "ACME_CLIENT_SECRET",
    },
];

const CLIENT_TEXT: &str = r#"{"client_id": "client-4711", "client_secret": "hunter2-hunter2"}"#;

fn refusal(answer: &Answer) -> Refusal {
    Refusal::from_status(answer.status())
}

async fn read(http: &Http) -> Result<Value, AdapterError> {
    http.get("/things").await?.read(refusal)
}

fn connect(server: &Server, auth: Auth, fields: &'static [Field], text: &str) -> Http {
    let config = HttpConfig {
        auth,
        fields,
        credential: Some(text.to_owned().into()),
        ..server.config()
    };
    Http::live(config).expect("a connection")
}

fn ok(body: &str) -> Turn {
    Turn::Answer(200, "", body.into())
}

fn grant(token: &str, seconds: u32) -> Turn {
    let body = json!({"access_token": token, "expires_in": seconds, "token_type": "Bearer"});
    ok(&body.to_string())
}

fn sign(call: &Unsigned<'_>, credential: &Credential) -> Vec<(&'static str, String)> {
    let seed = format!("{} {} {}", call.method, call.path, call.body.len());
    vec![
        (
            "x-signature",
            format!("{seed} by {}", credential.field("api_key")),
        ),
        ("x-time", call.unix_seconds.to_string()),
    ]
}

#[tokio::test]
async fn a_credential_goes_where_the_provider_reads_it() {
    for (auth, line) in [
        (Auth::Bearer, "authorization: Bearer hunter2-hunter2\r\n"),
        (Auth::Header("x-api-key"), "x-api-key: hunter2-hunter2\r\n"),
        (
            Auth::Signed(sign),
            "x-signature: GET /things 0 by hunter2-hunter2\r\n",
        ),
    ] {
        let server = Server::start(vec![ok("[1]")]).await;
        let http = connect(&server, auth, KEY, "hunter2-hunter2");
        assert_eq!(read(&http).await.expect("an answer"), json!([1]));
        let request = server.requests().remove(0);
        assert!(request.contains(line), "{request}");
        assert_eq!(request.matches("hunter2-hunter2").count(), 1, "{request}");
    }
    let server = Server::start(vec![ok("[1]")]).await;
    let open = connect(&server, Auth::None, KEY, "hunter2-hunter2");
    read(&open).await.expect("an answer");
    assert!(!server.requests()[0].contains("hunter2"));
}

#[tokio::test]
async fn a_token_is_fetched_once_and_again_when_it_is_refused() {
    let refused = Turn::Answer(401, "", r#"{"code": "expired"}"#.into());
    let server = Server::start(vec![
        grant("token-one-4711", 3_600),
        ok("[1]"),
        ok("[2]"),
        refused,
        grant("token-two-4711", 3_600),
        ok("[3]"),
    ])
    .await;
    let http = connect(
        &server,
        Auth::ClientCredentials("/oauth2/token"),
        CLIENT,
        CLIENT_TEXT,
    );
    for expected in 1..=3 {
        assert_eq!(read(&http).await.expect("an answer"), json!([expected]));
    }
    let requests = server.requests();
    let heads: Vec<&str> = requests.iter().filter_map(|it| it.lines().next()).collect();
    let (token, things) = (
        "POST /api/v1/oauth2/token HTTP/1.1",
        "GET /api/v1/things HTTP/1.1",
    );
    assert_eq!(heads, [token, things, things, things, token, things]);
    assert!(requests[0].contains(r#""client_secret":"hunter2-hunter2""#));
    assert!(!requests[0].contains("Bearer"));
    assert!(requests[2].contains("authorization: Bearer token-one-4711\r\n"));
    assert!(requests[5].contains("authorization: Bearer token-two-4711\r\n"));
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_not_used_again() {
    let turns = vec![
        grant("one-4711", 30),
        ok("[1]"),
        grant("two-4711", 30),
        ok("[2]"),
    ];
    let server = Server::start(turns).await;
    let http = connect(
        &server,
        Auth::ClientCredentials("/oauth2/token"),
        CLIENT,
        CLIENT_TEXT,
    );
    for expected in 1..=2 {
        assert_eq!(read(&http).await.expect("an answer"), json!([expected]));
    }
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_refused_client_is_a_refused_credential_even_of_an_order_and_is_not_quoted() {
    let echo = r#"{"error": "invalid_client", "got": "hunter2-hunter2 of client-4711"}"#;
    let server = Server::start(vec![Turn::Answer(400, "", echo.into())]).await;
    let http = connect(
        &server,
        Auth::ClientCredentials("/oauth2/token"),
        CLIENT,
        CLIENT_TEXT,
    );
    let ordered = http.post(Purpose::Order, "/launch", &json!({})).await;
    let error = ordered.expect_err("a refused credential");
    let refused = matches!(
        &error,
        AdapterError::Refused {
            refusal: Refusal::Credential,
            ..
        }
    );
    assert!(refused, "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert_eq!(
        server.requests().len(),
        1,
        "the order itself never went out"
    );
}

#[tokio::test]
async fn no_token_and_no_key_stands_in_an_error_or_a_recording() {
    let echo = |secret: &str| format!(r#"{{"detail": "what is {secret}?"}}"#);
    let server = Server::start(vec![
        grant("tok-short", 3_600),
        Turn::Answer(403, "", echo("tok-short")),
        ok(&echo("hunter2-hunter2")),
    ])
    .await;
    let directory = tempfile::tempdir().expect("a directory");
    let http = Http::live(HttpConfig {
        auth: Auth::ClientCredentials("/oauth2/token"),
        fields: CLIENT,
        credential: Some(CLIENT_TEXT.to_owned().into()),
        record_to: Some(directory.path().to_owned()),
        ..server.config()
    })
    .expect("a connection");
    let error = read(&http).await.expect_err("a refusal").to_string();
    assert!(!error.contains("tok-short"), "{error}");
    read(&http).await.expect("an answer");
    let files = std::fs::read_dir(directory.path()).expect("a directory");
    let files: Vec<String> = files
        .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text"))
        .collect();
    assert_eq!(files.len(), 2, "the answer with the token is not recorded");
    for text in files {
        assert!(
            !text.contains("tok-short") && !text.contains("hunter2"),
            "{text}"
        );
    }
}

#[test]
fn a_connection_needs_every_field_of_its_credential() {
    let config = HttpConfig {
        base_url: "https://cloud.example.com".into(),
        auth: Auth::ClientCredentials("/oauth2/token"),
        fields: CLIENT,
        ..HttpConfig::of(
            adapters::registry::all()[0].profile(),
            Some("hunter2-hunter2".to_owned().into()),
        )
    };
    let error = Http::live(config)
        .expect_err("a field is missing")
        .to_string();
    assert!(error.contains("`client_id`, `client_secret`"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}
