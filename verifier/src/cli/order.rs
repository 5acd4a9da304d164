//! Orders and levels on the command line. `verifier order` prints a level's order, to be changed and passed
//! to `verifier run --order`.

use std::path::Path;

use market::gpu::Gpu;
use market::verification::{Level, VerificationOrder};

use super::{PASSED, RunError, WRONG_INPUT, read};
use crate::order::{MOST_GPUS, Mode, check_order, expected_node, order_for, undrivable};

/// Arguments of `verifier order`.
#[derive(Debug, Clone, clap::Args)]
pub struct OrderArgs {
    /// The GPU that was sold, as `broker gpus` names it
    #[arg(long, value_name = "NAME", value_parser = Gpu::parse)]
    gpu: Gpu,
    /// How many GPUs were sold
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_GPUS.into()))]
    gpus: u32,
    /// How much is checked: quick, standard or deep
    #[arg(long, default_value = "standard", value_parser = parse_level)]
    level: Level,
}

/// Prints the order for real nodes with these GPUs. Gives the exit status.
#[must_use]
pub fn print_order(args: &OrderArgs) -> u8 {
    if let Some(why) = undrivable(args.gpu) {
        eprintln!("no agent carries out an order for a {}: {why}", args.gpu);
        return WRONG_INPUT;
    }
    let node = expected_node(args.gpu, args.gpus);
    let order = order_for(node, 0, args.level, Mode::Real);
    match serde_json::to_string_pretty(&order) {
        Ok(json) => {
            println!("{json}");
            PASSED
        }
        Err(error) => {
            eprintln!("the order cannot be written: {error}");
            WRONG_INPUT
        }
    }
}

/// Reads the name of a level.
pub(super) fn parse_level(text: &str) -> Result<Level, String> {
    [Level::Quick, Level::Standard, Level::Deep]
        .into_iter()
        .find(|level| level.as_str() == text)
        .ok_or_else(|| "a level is quick, standard or deep".to_owned())
}

/// Reads an order from a file.
///
/// Errors: [`RunError`] where the file holds no order, or one that no agent carries out.
pub(super) fn read_order(path: &Path) -> Result<VerificationOrder, RunError> {
    let order = serde_json::from_str(&read(path)?).map_err(RunError::Order)?;
    check_order(&order)?;
    Ok(order)
}
