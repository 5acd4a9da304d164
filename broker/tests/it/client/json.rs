//! `--json` prints the API's answer, one document on stdout and nothing else; without it, a table or a sheet
//! shows the same to people.

use market::identity::Role;
use serde_json::{Value, json};

use super::Shell;
use crate::service::{SSH_FINGERPRINT, SSH_LINE, Service, hold, quote};

#[tokio::test(flavor = "multi_thread")]
async fn with_json_each_command_prints_the_answer_of_the_api() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let shell = Shell::of(&service, &key);
    let held = hold(&service, &key).await;
    let (plan, quote) = quote(&service, &key).await;
    let offers = service.anyone().get("/v1/offers?limit=1").await.expect(200);
    let offer = offers["items"][0]["offer_id"].as_str().expect("an id");
    for (line, path) in [
        ("offers --gpu A10", "/v1/offers?gpu=A10".to_owned()),
        (
            "offers --country US --terms on_demand --min-gpus 8 --sort provider --limit 3",
            "/v1/offers?country=US&terms=on_demand&min_gpus=8&sort=provider&limit=3".to_owned(),
        ),
        (&format!("show {offer}"), format!("/v1/offers/{offer}")),
        (&format!("show {plan}"), format!("/v1/plans/{plan}")),
        (&format!("show {quote}"), format!("/v1/quotes/{quote}")),
        (&format!("show {held}"), format!("/v1/reservations/{held}")),
        (
            "reservations --open",
            "/v1/reservations?open_only=true".to_owned(),
        ),
        (
            "reservations --state closed",
            "/v1/reservations?state=closed".to_owned(),
        ),
        ("ssh-keys list", "/v1/ssh-keys".to_owned()),
        ("projects list", "/v1/projects".to_owned()),
        ("commitments list", "/v1/commitments".to_owned()),
        (
            "report costs --group-by project,day",
            "/v1/reports/costs?group_by=project,day".to_owned(),
        ),
    ] {
        let answered = service.with(&key).get(&path).await.expect(200);
        assert_eq!(shell.json(line).await, answered, "{line}");
    }
    let taken = shell.json(&format!("quote {plan}")).await;
    let of = format!("/v1/quotes/{}", taken["id"].as_str().expect("an id"));
    assert_eq!(taken, service.with(&key).get(&of).await.expect(200));
    let other = hold(&service, &key).await;
    for (verb, id, state) in [
        ("confirm", &held, "confirmed"),
        ("cancel", &other, "closed"),
    ] {
        let moved = shell.json(&format!("{verb} {id}")).await;
        assert_eq!(moved["state"], state, "{verb}");
        let shown = service.with(&key).get(&format!("/v1/reservations/{id}"));
        let mut shown = shown.await.expect(200);
        // The answer to a change is the reservation without the data that is looked up beside it.
        let shown = shown.as_object_mut().expect("an object");
        shown.retain(|field, _| moved.get(field).is_some());
        assert_eq!(moved.as_object(), Some(&*shown), "{verb}");
    }
    let all = shell.json("offers --include-unavailable --all").await;
    let page = service
        .anyone()
        .get("/v1/offers?include_unavailable=true&limit=200")
        .await
        .expect(200);
    assert_eq!(all["items"], page["items"], "the market fits into one page");
    assert_eq!(all["next_cursor"], Value::Null);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_json_a_login_and_its_end_say_whose_it_is_and_never_the_key() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let shell = Shell::new();
    let login = format!("login --server {} --json", service.world.base_url());
    let told = shell.run_reading(&key.secret, &login).await;
    let login = told.json(0);
    assert_eq!(login["role"], "member");
    assert_eq!(shell.json("whoami").await, login);
    assert_eq!(
        shell.json("logout").await,
        json!({ "forgotten": "default" })
    );
    assert!(!told.stdout.contains(&key.secret), "{told:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_counts_what_it_keeps_out_and_leads_to_a_quote_and_a_hold() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let shell = Shell::of(&service, &key);
    let file = shell.write("laptop.pub", &format!("{SSH_LINE} ada@laptop\n"));
    let added = shell.json(&format!("ssh-keys add {file}")).await;
    assert_eq!(
        (&added["name"], &added["fingerprint"]),
        (&json!("ada@laptop"), &json!(SSH_FINGERPRINT))
    );
    let made = shell.json("projects add vision").await;
    assert_eq!(made["name"], "vision");
    let listed = shell.told("projects list").await;
    assert!(listed.contains("vision"), "{listed}");
    let who = shell.told("whoami").await;
    assert!(who.contains("vision, default"), "{who}");
    let told = shell.told("plan --gpu H100-SXM --count 8 --top 1").await;
    assert!(told.contains("Why the first:"), "{told}");
    assert!(
        told.contains("It is another GPU than the demand names"),
        "{told}"
    );
    let next = told.lines().last().expect("a last line");
    let quote = next.strip_prefix("Next: broker ").expect("what to do next");
    let told = shell.told(quote).await;
    let next = told.lines().last().expect("a last line");
    let reserve = next.strip_prefix("Next: broker ").expect("what to do next");
    let labelled = format!("{reserve} --name run --tag team=research --owner ada");
    let placed = shell.json(&labelled).await;
    assert_eq!(
        (
            &placed["state"],
            &placed["name"],
            &placed["tags"]["team"],
            &placed["attribution"]["owner"]
        ),
        (
            &json!("held"),
            &json!("run"),
            &json!("research"),
            &json!("ada")
        )
    );
    let sheet = shell
        .told(&format!("show {}", placed["id"].as_str().expect("an id")))
        .await;
    for part in [
        "1 node of 8 H100-SXM",
        "held until",
        "team=research",
        "owner=ada",
    ] {
        assert!(sheet.contains(part), "{part} is missing in {sheet}");
    }
    let none = shell.run("plan --gpu A10 --count 16 --json").await;
    assert_eq!(none.json(1)["eligible"], 0);
    let demand = shell.write(
        "demand.json",
        &json!({ "kind": "gpus", "gpu": "A10", "count": 1 }).to_string(),
    );
    let by_file = shell.json(&format!("plan --demand {demand}")).await;
    let by_flags = shell.json("plan --gpu A10").await;
    assert_eq!(
        by_file["demand"], by_flags["demand"],
        "flags and file say the same"
    );
    let key_id = added["id"].as_str().expect("an id");
    assert_eq!(
        shell.json(&format!("ssh-keys delete {key_id}")).await["deleted"],
        true
    );
    assert!(shell.told("ssh-keys list").await.contains("There are none"));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_under_the_same_key_is_made_once() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    crate::service::ssh_key(&service, &key).await;
    let shell = Shell::of(&service, &key);
    let line = "reserve --gpu A10 --yes --idempotency-key once";
    let first = shell.json(line).await;
    assert_eq!(first["state"], "confirmed");
    assert_eq!(shell.json(line).await, first);
    let other = shell
        .run("reserve --gpu A10 --nodes 2 --idempotency-key once")
        .await;
    assert!(
        other.sentence(2).contains("(idempotency_key_reused, "),
        "{other:?}"
    );
    let fresh = shell.json("reserve --gpu A10 --yes").await;
    assert_ne!(
        fresh["id"], first["id"],
        "each invocation has a key of its own"
    );
    let quiet = "reserve --gpu H100-SXM --count 8 --yes --quiet";
    let quiet = shell.told(quiet).await;
    let id = quiet.strip_suffix('\n').expect("one line");
    assert_eq!(shell.json(&format!("show {id}")).await["id"], id, "{quiet}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_printed_for_each_shell_without_a_service() {
    let shell = Shell::new();
    for (name, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef broker"),
        ("fish", "complete -c broker"),
    ] {
        let script = shell.told(&format!("completions {name}")).await;
        assert!(
            script.contains(mark) && script.contains("max-usd-per-gpu-hour"),
            "{name}"
        );
    }
}
