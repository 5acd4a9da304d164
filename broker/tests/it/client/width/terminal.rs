//! On a terminal: colours, tables that programs get as CSV, and errors.

use market::identity::Role;

use super::{WIDTHS, faults};
use crate::client::{Ended, Shell, ended};
use crate::service::{Service, hold};

/// How a text begins that is bold, or has a colour.
const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";

/// A row that can be predicted, and one that cannot.
const RUNS: &str = "model,seq,mbs,micro_batches,precision,gpu,gpus,gpus_per_node,\
    internode_gb_s_per_node,framework,strategy,recompute\n\
    Llama 3 8B,8192,1,4,bf16,H100-SXM,8,8,,pytorch-fsdp,fsdp_full,none\n\
    Llama 3 8B,8192,1,4,bf16,Quantum-9000,8,8,,pytorch-fsdp,fsdp_full,none\n";

/// The same of serving tests.
const TESTS: &str = "metric,model,isl,osl,concurrency,weight_precision,kv_precision,gpu,gpus,tp,pp,framework\n\
    ttft,Llama 3 8B,1000,1,,fp8,fp8,H100-SXM,1,1,1,trtllm-0.13\n\
    ttft,Llama 3 8B,1000,1,,fp8,fp8,Quantum-9000,1,1,1,trtllm-0.13\n";

/// Runs a command on a terminal; `None`, with a printed notice, where no terminal can be made.
async fn on_a_terminal(shell: &Shell, line: &str) -> Option<Ended> {
    let child = shell.start_on_a_terminal(line)?;
    let mut shown = ended(child).await;
    shown.stdout = shown.stdout.replace('\r', "");
    Some(shown)
}

#[tokio::test(flavor = "multi_thread")]
async fn states_and_headings_have_colours_where_a_terminal_has_them() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    hold(&service, &key).await;
    let shell = || Shell::of(&service, &key).with("COLUMNS", "100");
    let held = format!("{YELLOW}held\u{1b}[0m");
    for (shell, coloured) in [
        (shell(), false),
        (shell().with("CLICOLOR_FORCE", "1"), true),
        (
            shell().with("CLICOLOR_FORCE", "1").with("NO_COLOR", "1"),
            false,
        ),
    ] {
        let told = shell.told("reservations").await;
        assert_eq!(told.contains(&held), coloured, "{told:?}");
        assert_eq!(told.contains(BOLD), coloured, "{told:?}");
        assert_eq!(told.contains('\u{1b}'), coloured, "{told:?}");
        let refused = shell.run("show rsv_0000").await;
        let red = format!("{BOLD}{RED}error:\u{1b}[0m no reservation");
        assert_eq!(refused.stderr.starts_with(&red), coloured, "{refused:?}");
    }
    if let Some(shown) = on_a_terminal(&shell(), "reservations").await {
        assert!(shown.stdout.contains(&held), "{shown:?}");
    }
    let plain = shell().with("NO_COLOR", "1");
    if let Some(shown) = on_a_terminal(&plain, "reservations").await {
        let has_colours = shown.stdout.contains(&held) || shown.stdout.contains(BOLD);
        assert!(!has_colours && shown.stdout.contains("held"), "{shown:?}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_are_a_table_on_a_terminal() {
    for width in WIDTHS {
        let shell = Shell::new()
            .with("COLUMNS", &width.to_string())
            .with("NO_COLOR", "1");
        for (table, rows) in [("training", RUNS), ("inference", TESTS)] {
            let file = shell.write("rows.csv", rows);
            let line = format!("predict {table} --rows {file}");
            let Some(shown) = on_a_terminal(&shell, &line).await else {
                return;
            };
            assert_eq!(shown.status, Some(0), "{shown:?}");
            for said in ["80 %", "interval", " to", "Quantum-9000", "1 of 2 rows"] {
                assert!(shown.stdout.contains(said), "{said}: {shown:?}");
            }
            assert_eq!(faults(&line, width, &shown.stdout), [""; 0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_help_are_as_wide_as_the_terminal() {
    for width in WIDTHS {
        let shell = Shell::new()
            .with("COLUMNS", &width.to_string())
            .with("NO_COLOR", "1");
        for (line, status) in [
            ("whoami", 2),
            ("attestation verify nowhere --key x --jwks y", 2),
            ("reserve --gpu H100-SXM --count 8 --nodes 2 --quote x", 2),
            ("reserve --help", 0),
            ("--help", 0),
        ] {
            let Some(shown) = on_a_terminal(&shell, line).await else {
                return;
            };
            assert_eq!(shown.status, Some(status), "{line}: {shown:?}");
            assert!(!shown.stdout.is_empty(), "{line}");
            assert_eq!(faults(line, width, &shown.stdout), [""; 0]);
        }
    }
}
