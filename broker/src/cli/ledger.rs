//! `broker ledger check`: checks the balances of the ledger.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::json;
use store::ledger::Books;

use super::database::open;
use crate::cli::database::DatabaseArgs;
use crate::platform::config::Config;
use crate::tenant::books::{self, Difference, MovedPrice};
use crate::terminal::colour::Colours;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::table::table;
use crate::terminal::text::{print_line, print_text};

#[derive(Debug, Subcommand)]
pub(super) enum LedgerCommand {
    Check(CheckArgs),
}

/// Checks ledger balances against usage, credits and costs; exit status 1 if they differ.
///
/// Every transaction must sum to zero. The debt of each tenant must equal the cost of its usage less its
/// credits. The GPU-seconds delivered must equal those used. Exit status 1 if anything differs. Provider
/// prices that changed at the launch are listed, but are no difference.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) fn run(command: LedgerCommand) -> Result<(), Ending> {
    let LedgerCommand::Check(args) = command;
    let config = Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    block_on(async {
        let store = open(&config).await?;
        let books = store.ledger().books().await?;
        let differences = books::differences(&books)?;
        let leases = store.leases().across_tenants().with_stated_price().await?;
        let moved = books::moved_prices(&leases);
        if args.json {
            print_line(&as_json(&books, &differences, &moved))?;
        } else {
            print_for_people(&books, &differences, &moved)?;
        }
        match differences.len() {
            0 => Ok(()),
            number => Err(Ending::No(format!(
                "the ledger is wrong in {number} places; compare the transactions behind each, and \
                 post what is missing instead of changing existing entries"
            ))),
        }
    })
}

fn as_json(books: &Books, differences: &[Difference], moved: &[MovedPrice]) -> String {
    let accounts = books.balances.iter().map(|row| {
        json!({
            "account": row.account.to_string(),
            "unit": row.unit.to_string(),
            "amount": books::shown(row.unit, row.amount),
        })
    });
    let totals: BTreeMap<_, _> = books
        .check
        .totals
        .iter()
        .map(|(unit, total)| (unit.to_string(), books::shown(*unit, *total)))
        .collect();
    json!({
        "balanced": differences.is_empty(),
        "transactions": books.check.transactions,
        "postings": books.check.postings,
        "charges": books.charges.len(),
        "credits": books.credits.len(),
        "totals": totals,
        "accounts": accounts.collect::<Vec<_>>(),
        "differences": differences,
        "moved_prices": moved,
    })
    .to_string()
}

fn print_for_people(
    books: &Books,
    differences: &[Difference],
    moved: &[MovedPrice],
) -> std::io::Result<()> {
    let balances = books.balances.iter().map(|row| {
        vec![
            row.account.to_string(),
            row.unit.to_string(),
            books::shown(row.unit, row.amount),
        ]
    });
    print_line(&table(&["account", "unit", "amount"], balances))?;
    if !moved.is_empty() {
        let rows = moved.iter().map(|price| {
            vec![
                price.lease_id.clone(),
                price.provider.clone(),
                price.quoted_usd.to_string(),
                price.billed_usd.to_string(),
            ]
        });
        let moved = "Billed at another price than quoted, for one node and hour:";
        print_line("")?;
        print_text(&Colours::of_stdout().heading(moved))?;
        print_line(&table(&["lease", "provider", "quoted", "billed"], rows))?;
    }
    if !differences.is_empty() {
        let rows = differences
            .iter()
            .map(|one| vec![one.what.clone(), one.expected.clone(), one.found.clone()]);
        print_line("")?;
        print_line(&Colours::of_stdout().error("Wrong:"))?;
        print_line(&table(&["what", "expected", "found"], rows))?;
    }
    let verdict = if differences.is_empty() {
        "the ledger balances"
    } else {
        "the ledger does not balance"
    };
    print_text(&format!(
        "\n{} transactions, {} charges, {} credits: {verdict}",
        books.check.transactions,
        books.charges.len(),
        books.credits.len()
    ))
}
