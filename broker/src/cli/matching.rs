//! `broker match`: ranks the offers of price lists, with reasons. No server, no database.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use adapters::pricesheet::{self, PriceSheets};
use clap::Args;
use market::catalog::Skipped;
use market::counted::counted;
use market::demand::Demand;
use market::ids::ProviderId;
use market::offer::Offer;
use market::provider_facts::ProviderFacts;
use matcher::{Candidate, Held, Plan, ProviderView, SearchOptions, Snapshot};
use serde_json::{Value, json};

use super::candidates::{candidate_table, is_spot};
use super::hybrid::{paired, shown, told};
use super::input::read_json;
use super::own::read_own;
use super::record::{replay, write_record};
use crate::flow::decision::DecisionRecord;
use crate::flow::plan::{CANDIDATES_KEPT, Question, SIMULATED};
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::aside::warn;
use crate::terminal::colour::Colours;
use crate::terminal::ending::Ending;
use crate::terminal::plan_lines;
use crate::terminal::price::marked_price;
use crate::terminal::price_lists::{all_readable, read_sheets, why_unread};
use crate::terminal::text::{clean, hanging, print_answer};

/// Ranks the offers of price lists for a demand; no server, no database.
///
/// The age of an offer comes from its row (column `as_of`), else from its file. Every candidate shows
/// the date, and none is too old. A file that is no price list is reported; if no file is one, that is
/// wrong input.
///
/// Exit status: 0 there are candidates, 1 there are none, 2 wrong input.
#[derive(Debug, Args)]
pub(super) struct MatchArgs {
    /// Price lists: CSV files, one row for each offer.
    #[arg(long, num_args = 1.., required_unless_present = "replay", value_name = "FILE.csv")]
    offers: Vec<PathBuf>,
    /// The demand, as JSON; `-` reads it from standard input. For example
    /// {"kind":"gpus","gpu":"H100-SXM","count":8}.
    #[arg(long, required_unless_present = "replay", value_name = "FILE")]
    demand: Option<PathBuf>,
    /// Commitments and negotiated prices, as JSON:
    /// {"commitments": [...], "provider_accounts": [...]}, each as in the API.
    #[arg(long, value_name = "FILE")]
    own: Option<PathBuf>,
    /// Recorded facts about providers, as JSON by their ids, each as in the settings:
    /// {"nebius": {"operator": {"company": …, "country": …}, "certifications": [{"name": …,
    /// "evidence": …, "valid_until": …}]}}. A policy on operators or certifications
    /// excludes providers without an entry.
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// Also explains the result for an offer, by its SKU or its id; may be repeated.
    #[arg(long, value_name = "OFFER")]
    why: Vec<String>,
    /// How many candidates to show.
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Also writes a decision record: the demand, every offer, the versions and the result.
    #[arg(long, value_name = "FILE.json")]
    record: Option<PathBuf>,
    /// Computes a decision record again, and reports whether the result is identical.
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["offers", "demand", "own", "facts", "record", "why"])]
    replay: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &MatchArgs) -> Result<(), Ending> {
    if let Some(file) = &args.replay {
        return replay(file, args.json);
    }
    let now = SystemClock.now();
    let demand: Demand = match &args.demand {
        Some(file) => read_json("the demand", file)?,
        None => return Err(Ending::wrong_input("give a demand: --demand FILE")),
    };
    demand.check(now).map_err(|faults| {
        let words: Vec<_> = faults
            .iter()
            .map(|f| format!("{}: {}", f.field, f.detail))
            .collect();
        Ending::wrong_input(format!("the demand is not valid; {}", words.join("; ")))
    })?;
    let read = pricesheet::read_price_sheets(&read_sheets(&args.offers)?, now);
    if read.unread_files().count() == args.offers.len() {
        all_readable(&read)?;
    }
    let providers: BTreeSet<_> = read
        .offers
        .iter()
        .map(|offer| offer.provider.clone())
        .collect();
    let mut facts: BTreeMap<ProviderId, ProviderFacts> = match &args.facts {
        Some(file) => read_json("what is on record of providers", file)?,
        None => BTreeMap::new(),
    };
    let views = providers.into_iter().map(|id| {
        let view = ProviderView {
            facts: facts.remove(&id).unwrap_or_default(),
            ..ProviderView::default()
        };
        (id, view)
    });
    let views: HashMap<_, _> = views.collect();
    let own = match &args.own {
        Some(file) => Arc::new(read_own(file, now)?),
        None => Arc::default(),
    };
    warn_of_strangers("--facts", facts.keys(), &views);
    let paid = own.commitments.iter().map(|open| &open.commitment.provider);
    let agreed = own.accounts.iter().map(|account| &account.provider);
    warn_of_strangers("--own", paid.chain(agreed), &views);
    let listed = Snapshot::new(0, now, read.offers.clone(), views);
    let snapshot = matcher::at_own_prices(&listed, &own, now).unwrap_or(listed);
    // The best pair of a hybrid demand may include neither half's best candidate.
    let limit = match demand {
        Demand::Hybrid(_) => args.top.max(CANDIDATES_KEPT),
        _ => args.top,
    };
    let asked = named(&read.offers, &args.why)?;
    let options = SearchOptions {
        limit,
        asked: asked.iter().map(|offer| offer.offer_id).collect(),
        alternatives: true,
        simulated: SIMULATED,
        own,
        ..SearchOptions::default()
    };
    let held = Held::new();
    let question = Question {
        demand: &demand,
        snapshot: &snapshot,
        held: &held,
        now,
        options: &options,
        orderable_kept: 0,
    };
    let mut plan = question.answer().map_err(Ending::wrong_input)?;
    if let Some(file) = &args.record {
        write_record(file, &DecisionRecord::of(&question, &plan)?)?;
    }
    if let Some(hybrid) = &mut plan.hybrid {
        hybrid.pairs.truncate(args.top);
    }
    let paired = paired(plan.hybrid.as_ref());
    let shown = shown(&plan.candidates, &paired, args.top, |one| {
        (one.half, one.rank)
    });
    let answer = if args.json {
        as_json(&read, &plan, &shown, &asked)?
    } else {
        as_text(&read, &plan, &shown, &asked)
    };
    print_answer(&answer, args.json)?;
    if !plan.is_met() {
        let what = match plan.hybrid {
            None => "no offer satisfies the demand",
            Some(_) => "no run fits together with a fleet after it",
        };
        let why = format!("{what}; widen the demand where the counted reasons say");
        return Err(Ending::No(why));
    }
    Ok(())
}

/// Warns of providers in a file that have no offer in these lists: mostly misspelt names.
fn warn_of_strangers<'a>(
    file: &str,
    named: impl Iterator<Item = &'a ProviderId>,
    sellers: &HashMap<ProviderId, ProviderView>,
) {
    let strangers: BTreeSet<_> = named.filter(|id| !sellers.contains_key(*id)).collect();
    let names = |ids: Vec<&ProviderId>| {
        let mut names: Vec<_> = ids.iter().map(|id| id.as_str()).collect();
        names.sort_unstable();
        names.join(", ")
    };
    if !strangers.is_empty() {
        warn(&format!(
            "{file} names {}, and no offer of these lists is of that name; they are of {}",
            names(strangers.into_iter().collect()),
            names(sellers.keys().collect()),
        ));
    }
}

/// The offers with these names, each a SKU or the id of an offer.
fn named<'a>(offers: &'a [Offer], names: &[String]) -> Result<Vec<&'a Offer>, Ending> {
    let mut found = Vec::new();
    for name in names {
        let is_named = |offer: &&Offer| offer.sku == *name || offer.offer_id.to_string() == *name;
        let before = found.len();
        found.extend(offers.iter().filter(is_named));
        if found.len() == before {
            return Err(Ending::wrong_input(format!(
                "--why {name}: no offer of these lists has that SKU or id"
            )));
        }
    }
    Ok(found)
}

fn as_json(
    read: &PriceSheets,
    plan: &Plan,
    shown: &[&Candidate],
    asked: &[&Offer],
) -> Result<String, Ending> {
    let mut candidates = Vec::new();
    for candidate in shown {
        candidates.extend(candidate.offers_with_reasons()?);
    }
    let mut answer = json!({
        "rows_read": read.rows_read,
        "offers": read.offers.len(),
        "eligible": plan.eligible,
        "candidates": candidates,
        "rejected": plan.rejected,
        "refused": plan.refused,
        "alternatives": plan.alternatives,
        "skipped": read.skipped.iter().map(skipped_as_json).collect::<Vec<_>>(),
    });
    if let Some(hybrid) = &plan.hybrid {
        answer["hybrid"] = serde_json::to_value(hybrid)?;
    }
    if !asked.is_empty() {
        let told = asked.iter().map(|offer| {
            let (id, sku) = (offer.offer_id, &offer.sku);
            let (region, verdicts) = (&offer.place.region, plan.verdicts(id));
            json!({
                "offer_id": id, "provider": offer.provider, "sku": sku, "region": region,
                "verdicts": verdicts,
            })
        });
        answer["asked"] = told.collect();
    }
    Ok(answer.to_string())
}

/// An entry with all its fields, so that a reader need not check which are present. `row` is `null`
/// if it is about the whole file.
fn skipped_as_json(skipped: &Skipped) -> Value {
    json!({
        "file": skipped.file,
        "row": skipped.row,
        "rows": skipped.rows,
        "sku": skipped.sku,
        "reason": skipped.reason,
        "why": skipped.why,
    })
}

fn as_text(read: &PriceSheets, plan: &Plan, shown: &[&Candidate], asked: &[&Offer]) -> String {
    let heading = |text: &str| Colours::of_stdout().heading(text);
    let mut lines = Vec::new();
    if let Some(best) = shown.first() {
        lines.push(candidate_table(shown));
        if best.lines.len() > 1 {
            let is_spot = best.lines.iter().any(|line| is_spot(&line.offer));
            let price = marked_price(best.cost_per_hour.to_string(), is_spot);
            lines.push(format!("The first in total: {price} USD/h"));
        }
        for best in told_why(plan) {
            lines.push(heading(&match best.half {
                None => "Why the first:".to_owned(),
                Some(half) => format!("Why {} to {half}:", best.rank),
            }));
            let reasons = best.reasons.iter();
            lines.extend(reasons.map(|reason| hanging("  - ", &clean(reason))));
        }
        for launch in told_why(plan).iter().flat_map(|best| &best.launch) {
            let ports: Vec<_> = launch.ports.iter().map(u16::to_string).collect();
            let mut lines_of_fleet = best.lines.iter().filter(|_| best.lines.len() > 1);
            let on = lines_of_fleet.find(|line| line.offer.offer_id == launch.offer_id);
            let on = on.map(|line| format!("{} {}", line.offer.provider, line.offer.sku));
            let config = launch.config.as_ref();
            lines.push(plan_lines::launch(&plan_lines::Launch {
                on: on.as_deref(),
                engine: &launch.engine,
                ports: &ports,
                command: &launch.command,
                config: config.map(|config| (config.file.as_str(), config.contents.as_str())),
            }));
        }
        for other in &plan.alternatives {
            let tokens = [
                other.asked_usd_per_million_tokens,
                other.usd_per_million_tokens,
            ];
            let [asked, with] =
                tokens.map(|price| price.map(|price| price.to_decimal().round_dp(4).to_string()));
            lines.push(plan_lines::alternative(
                other.weights.as_str(),
                &other.price_usd_hour.to_string(),
                &other.saves_usd_hour.to_string(),
                asked.as_deref().zip(with.as_deref()),
            ));
        }
    }
    if let Some(hybrid) = &plan.hybrid {
        lines.extend(told(hybrid, |rank| {
            let line = plan.candidates.get(rank - 1)?.lines.first()?;
            Some(format!("{rank} {}", line.offer.sku))
        }));
    }
    for offer in asked {
        let region = offer.place.region.as_deref().unwrap_or("an unknown region");
        let of = format!("Of {} {} in {region}:", offer.provider, offer.sku);
        lines.push(heading(&clean(&of)));
        lines.extend(plan.verdicts(offer.offer_id).iter().map(|told| {
            let half = told.half.map(|half| format!("to {half}: "));
            let reason = told.reason.map(|reason| format!("{reason}: "));
            let words = [half.unwrap_or_default(), reason.unwrap_or_default()].concat();
            hanging("  - ", &clean(&format!("{words}{}", told.why)))
        }));
    }
    lines.push(format!(
        "{} read: {}; {}",
        counted(read.rows_read, "row"),
        counted(read.offers.len(), "offer"),
        match &plan.hybrid {
            None => plan_lines::verdict(plan.eligible as u64, plan.rejected.total as u64),
            Some(hybrid) => plan_lines::verdict_of_halves(
                hybrid.eligible_train as u64,
                hybrid.eligible_serve as u64,
                plan.rejected.total as u64
            ),
        },
    ));
    for (reason, count) in &plan.rejected.by_reason {
        let words = format!("{reason}: {}", reason.meaning());
        lines.push(hanging(&format!("  {count:>6}  "), &words));
        let examples = plan.refused.iter().filter(|one| one.reason == *reason);
        lines.extend(examples.map(|one| {
            let words = format!("such as {} {}: {}", one.provider, one.sku, one.why);
            hanging("          ", &clean(&words))
        }));
    }
    let mut without_offer: BTreeMap<&str, u64> = BTreeMap::new();
    for skipped in &read.skipped {
        *without_offer.entry(skipped.reason.as_str()).or_default() += skipped.rows;
    }
    without_offer.retain(|_, rows| *rows > 0);
    if !without_offer.is_empty() {
        let rows: u64 = without_offer.values().sum();
        lines.push(format!(
            "{} gave no offer (--json names each, and why):",
            counted(rows, "row")
        ));
        lines.extend(
            without_offer
                .iter()
                .map(|(reason, rows)| format!("  {rows:>6}  {reason}")),
        );
    }
    lines.extend(
        read.unread_files()
            .map(|file| hanging("  ", &clean(&why_unread(file)))),
    );
    lines.join("\n")
}

/// The candidates whose reasons are shown: the best, or those of the best pair.
fn told_why(plan: &Plan) -> Vec<&Candidate> {
    let pair = plan.hybrid.as_ref().and_then(|hybrid| hybrid.pairs.first());
    let ranks = match pair {
        Some(pair) => vec![pair.train_candidate, pair.serve_candidate],
        None => vec![1],
    };
    let known = ranks.into_iter();
    known
        .filter_map(|rank| plan.candidates.get(rank - 1))
        .collect()
}
