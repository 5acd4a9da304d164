//! From a login to the cost report with the client alone, while the test advances the clock.

use std::path::Path;

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;

use super::{Shell, ended};
use crate::eventually::{eventually, in_time};
use crate::service::{Caller, Key, SSH_LINE, Service, orderable_demand};

/// Waits until the tenant's only reservation is confirmed. The clock stands still meanwhile: a
/// command that still plans must not find that its quote has lapsed.
async fn until_confirmed(caller: &Caller<'_>, watch: &mut Child) {
    eventually("a confirmed reservation", async || {
        let page = caller.get("/v1/reservations").await.expect(200);
        let state = &page["items"][0]["state"];
        let is_confirmed = state.is_string() && state != "held";
        is_confirmed || watch.try_wait().expect("a child").is_some()
    })
    .await;
}

/// Advances the clock until the reservation is in this state.
async fn turn_until(service: &Service, caller: &Caller<'_>, id: &str, state: &str) {
    for _ in 0..240 {
        let shown = caller.get(&format!("/v1/reservations/{id}")).await;
        if shown.expect(200)["state"] == state {
            return;
        }
        let turn = service.world.turn(TimeDelta::seconds(30));
        turn.await.expect("the clock turns");
    }
    panic!("{id} was not {state} within two hours of the clock");
}

/// Waits until the reservation is asked to end.
async fn until_wished_for(caller: &Caller<'_>, id: &str) {
    eventually("the wish to end the reservation", async || {
        let shown = caller.get(&format!("/v1/reservations/{id}")).await;
        shown.expect(200)["wish"].is_string()
    })
    .await;
}

/// Waits until a command has drawn something on its terminal.
async fn until_drawn(command: &mut Child, wanted: &str) {
    let stdout = command.stdout.as_mut().expect("standard output");
    let mut drawn = Vec::new();
    let seen = async {
        while !String::from_utf8_lossy(&drawn).contains(wanted) {
            let more = stdout.read_buf(&mut drawn).await.expect("readable");
            assert!(more > 0, "it ended: {}", String::from_utf8_lossy(&drawn));
        }
    };
    in_time("what it draws", seen).await;
}

async fn logged_in(service: &Service, key: &Key) -> Shell {
    let shell = Shell::new();
    let login = format!("login --server {}", service.world.base_url());
    let ended = shell.run_reading(&key.secret, &login).await;
    assert_eq!(ended.status, Some(0), "{ended:?}");
    shell
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_walks_from_login_to_the_cost_report_with_the_client_alone() {
    let service = Service::start_with_nodes().await;
    let key = service.key("acme", Role::Member).await;
    let shell = logged_in(&service, &key).await;
    let public = shell.write("laptop.pub", SSH_LINE);
    shell.told(&format!("ssh-keys add {public}")).await;
    let mut demand = orderable_demand(&service).await;
    demand["window"] = json!({ "duration_hours": 5 });
    let demand = shell.write("demand.json", &demand.to_string());

    let reserve = format!("reserve --demand {demand} --tag team=research --yes --watch");
    let mut watch = shell.start(&reserve);
    let caller = service.with(&key);
    until_confirmed(&caller, &mut watch).await;
    let page = shell.json("reservations --open").await;
    let id = page["items"][0]["id"].as_str().expect("an id").to_owned();
    let mut on_a_terminal = shell.start_on_a_terminal(&format!("watch {id}"));
    if let Some(watch) = &mut on_a_terminal {
        until_drawn(watch, "[ ").await;
        // It moves though nothing happens.
        until_drawn(watch, "00:00:01").await;
    }
    turn_until(&service, &caller, &id, "active").await;
    if let Some(watch) = on_a_terminal {
        let drawn = ended(watch).await;
        assert_eq!(drawn.status, Some(0), "{drawn:?}");
        assert!(drawn.stdout.contains("[="), "it never moved: {drawn:?}");
    }
    let watched = ended(watch).await;
    assert_eq!(watched.status, Some(0), "{watched:?}");
    for part in [
        "confirmed",
        "accepted",
        "handed off",
        "active",
        "Next: broker access rsv_",
    ] {
        assert!(
            watched.stdout.contains(part),
            "{part} is missing in {watched:?}"
        );
    }
    assert_eq!(watched.stderr, "", "no spinner where there is no terminal");

    access_is_shown_in_each_form(&shell, &id).await;
    access_is_written_for_ssh_and_nothing_else_is_written_over(&shell, &id).await;
    let before = shell.json(&format!("show {id}")).await;
    let extended = shell.json(&format!("extend {id} --hours 2")).await;
    let end = |body: &serde_json::Value| {
        let end = body["window_end"].as_str().expect("an end");
        end.parse::<chrono::DateTime<chrono::Utc>>()
            .expect("a time")
    };
    assert_eq!(end(&extended) - end(&before), TimeDelta::hours(2));
    let refused = shell.run(&format!("cancel {id}")).await;
    let sentence = refused.sentence(1);
    for said in ["that is active cannot be cancelled", "`broker release`"] {
        assert!(sentence.contains(said), "{sentence}");
    }
    let planned = shell.told("plan --gpu any --count 8").await;
    let told = planned.lines().skip_while(|line| *line != "Why the first:");
    let too_wide = told.clone().find(|line| line.chars().count() > 100);
    assert!(told.count() > 3 && too_wide.is_none(), "{too_wide:?}");
    // However long it is, no word of the table is broken.
    for word in ["gpu-h200-sxm_8gpu-128vcpu-1600gb", "USD/GPU-h"] {
        assert!(planned.contains(word), "{word}: {planned}");
    }

    service
        .world
        .turn(TimeDelta::hours(1))
        .await
        .expect("the clock turns");
    let release = shell.start(&format!("release {id} --watch"));
    until_wished_for(&caller, &id).await;
    let watch = shell.start(&format!("watch {id} --json"));
    turn_until(&service, &caller, &id, "closed").await;
    let closed = ended(watch).await.json(0);
    assert_eq!(
        (&closed["state"], &closed["reason"]),
        (&json!("closed"), &json!("released"))
    );
    let released = ended(release).await;
    assert_eq!(released.status, Some(0), "{released:?}");
    for part in ["closed (released)", "charged"] {
        assert!(
            released.stdout.contains(part),
            "{part} is missing in {released:?}"
        );
    }
    let gone = shell.run(&format!("watch {id} --until active")).await;
    assert!(gone.sentence(1).contains("closed (released)"), "{gone:?}");
    what_was_used_is_reported(&shell).await;
    what_was_used_is_of_its_project_alone(&service, &key, &id).await;
    service.stop().await;
}

async fn what_was_used_is_of_its_project_alone(service: &Service, key: &Key, id: &str) {
    let whole = service.with(key);
    let shown = whole.get(&format!("/v1/reservations/{id}")).await;
    let its_project = shown.expect(200)["project_id"].clone();
    let its_project = its_project.as_str().expect("an id");
    let made = whole
        .post("/v1/projects", &json!({ "name": "another" }))
        .await;
    let another = made.expect(201)["id"].clone();
    let another = another.as_str().expect("an id");
    let nodes = whole.get(&format!("/v1/reservations/{id}/nodes")).await;
    let proof = nodes.expect(200)["items"][0]["attestation_id"].clone();
    let proof = format!("/v1/attestations/{}", proof.as_str().expect("an id"));
    let report = whole.get("/v1/reports/costs").await.expect(200);
    for (project, reached) in [(its_project, true), (another, false)] {
        let bound = service.key_in("acme", Role::Member, project).await;
        let bound = service.with(&bound);
        let its = bound.get("/v1/reports/costs").await.expect(200);
        assert_eq!(its["total_usd"] == report["total_usd"], reached, "{its}");
        let shown = bound.get(&proof).await;
        assert_eq!(
            shown.status,
            if reached { 200 } else { 404 },
            "{}",
            shown.text
        );
    }
}

async fn access_is_shown_in_each_form(shell: &Shell, id: &str) {
    let access = shell.json(&format!("access {id}")).await;
    let node = &access["nodes"][0];
    let (host, user) = (node["host"].as_str(), node["user"].as_str());
    let (host, user) = (host.expect("a host"), user.expect("a user"));
    let table = shell.told(&format!("access {id}")).await;
    let command = format!("ssh -p {} {user}@{host}", node["port"]);
    assert!(table.contains(&command), "{table}");
    let entry = shell.told(&format!("access {id} --ssh-config")).await;
    assert!(entry.contains(&format!("    HostName {host}\n")), "{entry}");
    for (flag, file) in [
        ("ssh-config", "/ssh_config"),
        ("known-hosts", "/known_hosts"),
        ("hostfile", "/hostfile"),
    ] {
        let told = shell.run(&format!("access {id} --{flag}")).await;
        let written = access.pointer(file).and_then(Value::as_str);
        let written = written.expect("a file").to_owned();
        // The installed key is known to its owner.
        let key = shell.home.path().join("laptop.pub");
        let key = format!("    IdentityFile \"{}\"\n", key.display());
        let expected = match flag {
            "ssh-config" => written + &key,
            _ => written,
        };
        assert_eq!(told.stdout, expected, "--{flag}");
        let is_noted = told.stderr.contains("--identity FILE");
        assert_eq!(is_noted, flag == "ssh-config", "{told:?}");
    }
    let command = shell.told(&format!("access {id} --torchrun")).await;
    let written = access["torchrun"]["commands"][0].as_str();
    assert_eq!(Some(command.trim_end()), written);
}

async fn access_is_written_for_ssh_and_nothing_else_is_written_over(shell: &Shell, id: &str) {
    let access = shell.json(&format!("access {id}")).await;
    let line = format!("access {id} --ssh-dir nodes");
    let told = shell.told(&line).await;
    let folder = shell.home.path().join("nodes");
    let [config, known_hosts] = ["config", "known_hosts"].map(|name| folder.join(name));
    let alias = format!("gpb-{}-0", &id[id.len() - 8..]);
    assert_eq!(told, format!("Next: ssh -F {} {alias}\n", config.display()));
    let read = |file: &Path| std::fs::read_to_string(file).expect("a file");
    let entry = read(&config);
    for part in [
        format!("\nHost {alias}\n"),
        format!("    UserKnownHostsFile \"{}\"\n", known_hosts.display()),
        "    StrictHostKeyChecking yes\n".to_owned(),
    ] {
        assert!(entry.contains(&part), "{part} is missing in {entry}");
    }
    let hosts = access["known_hosts"].as_str().expect("known hosts");
    assert!(read(&known_hosts).ends_with(hosts), "the host keys");
    assert_eq!(
        shell.json(&line).await,
        json!({ "config": config, "known_hosts": known_hosts }),
        "files of this command may be overwritten"
    );
    std::fs::write(&known_hosts, "somebody else's").expect("a file");
    let refused = shell.run(&line).await;
    assert!(refused.sentence(2).contains("known_hosts"), "{refused:?}");
    assert_eq!(read(&known_hosts), "somebody else's");
}

async fn what_was_used_is_reported(shell: &Shell) {
    let report = shell.json("report costs --group-by tag:team").await;
    assert!(
        report["total_gpu_seconds"].as_u64() >= Some(3_600),
        "{report}"
    );
    let table = shell
        .told("report costs --group-by tag:team,workload")
        .await;
    assert!(
        table.contains("research") && table.contains("in all"),
        "{table}"
    );
    let csv = shell.told("report costs --group-by tag:team --csv").await;
    assert!(
        csv.lines().any(|line| line.starts_with("research,")),
        "{csv}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_one_when_the_hold_lapses_and_with_none_when_it_is_cancelled() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let shell = Shell::of(&service, &key);
    let lapsing = crate::service::hold(&service, &key).await;
    let watch = shell.start(&format!("watch {lapsing}"));
    turn_until(&service, &service.with(&key), &lapsing, "closed").await;
    let lapsed = ended(watch).await;
    assert!(
        lapsed.sentence(1).contains("closed (expired)"),
        "{lapsed:?}"
    );
    let failures = service.world.read_providers().await;
    assert!(failures.is_empty(), "{failures:?}");
    let unwanted = crate::service::hold(&service, &key).await;
    shell.told(&format!("cancel {unwanted}")).await;
    let cancelled = shell.run(&format!("watch {unwanted}")).await;
    assert_eq!(cancelled.status, Some(0), "{cancelled:?}");
    assert!(
        cancelled.stdout.contains("closed (cancelled)"),
        "{cancelled:?}"
    );
    service.stop().await;
}
