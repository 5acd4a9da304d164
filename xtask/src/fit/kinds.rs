//! The kinds of rows that are judged separately.

use matcher::perf::chip::Architecture;
use matcher::perf::rows::Table;

use super::measured::Measured;

/// A kind: its name, and which rows are of it.
pub(crate) type Kind = (&'static str, fn(&Measured) -> bool);

/// Tokens of a sequence from which on it is long.
const LONG_SEQUENCE: f64 = 16_384.0;

/// The kinds of rows of each table.
pub(crate) fn kinds(table: Table) -> Vec<Kind> {
    match table {
        Table::Training => vec![
            ("one scale-up domain", |row| !row.case.several_domains()),
            ("several", |row| row.case.several_domains()),
            ("mixtures of experts", |row| row.case.is_mixture()),
        ],
        Table::Inference => vec![
            ("dense models", |row| !row.case.is_mixture()),
            ("mixtures of experts", |row| row.case.is_mixture()),
            ("several GPUs", |row| row.gpus > 1.0),
        ],
    }
}

/// The kinds of rows on which the reference is weak according to its authors, one by one.
pub(crate) fn weak_spots(table: Table) -> Vec<Kind> {
    match table {
        Table::Training => vec![
            ("16k to 128k tokens a sequence", is_long),
            ("those of 1-8B on Hopper", |row| {
                let hopper = row.case.chip().architecture == Architecture::Hopper;
                is_long(row) && hopper && (1.0..=8.0).contains(&row.active_b)
            }),
            ("mixtures outside Megatron", |row| {
                row.case.is_mixture() && row.framework != "megatron"
            }),
            ("256 GPUs and more, 400 GB/s a node and more", |row| {
                row.all_gpus >= 256.0 && row.net_gb_s_node.is_some_and(|rate| rate >= 400.0)
            }),
        ],
        Table::Inference => vec![
            ("mixtures over PCI Express", is_mixture_over_pcie),
            ("those on Blackwell", |row| {
                is_mixture_over_pcie(row) && row.case.chip().architecture == Architecture::Blackwell
            }),
            ("weights fill 80 % of the memory and more", |row| {
                row.case.weights_share() >= 0.8
            }),
            ("a limit per token, over PCI Express", |row| {
                row.token_limit_ms.is_some() && row.case.chip().is_pcie_only()
            }),
            ("untuned vLLM", |row| row.framework == "vllm"),
            ("vLLM of 2024", |row| row.framework == "vllm-2024"),
        ],
    }
}

fn is_long(row: &Measured) -> bool {
    row.case.sequence_tokens() >= LONG_SEQUENCE
}

fn is_mixture_over_pcie(row: &Measured) -> bool {
    row.case.is_mixture() && row.case.chip().is_pcie_only()
}
