//! The columns of a table of measurements, for people who write one.

use super::{Table, inference, training};

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// Whether every row must fill it.
    pub needed: bool,
    /// Its meaning, its unit, and the meaning of a blank.
    pub meaning: &'static str,
    /// The words that it accepts, where it accepts only some.
    pub words: Option<&'static str>,
}

const fn needed(name: &'static str, meaning: &'static str) -> Column {
    Column {
        name,
        needed: true,
        meaning,
        words: None,
    }
}

const fn blank(name: &'static str, meaning: &'static str) -> Column {
    Column {
        needed: false,
        ..needed(name, meaning)
    }
}

const fn of(words: &'static str, column: Column) -> Column {
    Column {
        words: Some(words),
        ..column
    }
}

const MODEL: Column = needed(
    "model",
    "a name that `broker models` lists; for others the figures below describe it",
);
const PARAMS_B: Column = blank(
    "params_b",
    "parameters, in billions; for a model that is not listed",
);
const ACTIVE_B: Column = blank(
    "active_b",
    "parameters used per token, in billions; blank: all of them",
);
const LAYERS: Column = blank(
    "layers",
    "transformer layers; for a model that is not listed",
);
const HIDDEN: Column = blank(
    "hidden",
    "width of the residual stream; for a model that is not listed",
);
const HEADS: Column = blank("heads", "attention heads; for a model that is not listed");
const GPU: Column = needed("gpu", "a name that `broker gpus` lists");

const TRAINING: &[Column] = &[
    MODEL,
    PARAMS_B,
    ACTIVE_B,
    LAYERS,
    HIDDEN,
    HEADS,
    needed("seq", "tokens of a sequence"),
    blank("mbs", "sequences of a micro-batch; blank: 1"),
    blank(
        "micro_batches",
        "micro-batches of a step on each replica; blank: 1",
    ),
    of(training::PRECISIONS, needed("precision", "of the products")),
    GPU,
    needed("gpus", "GPUs of the run"),
    needed("gpus_per_node", "GPUs that NVLink or its like joins"),
    blank(
        "internode_gb_s_per_node",
        "network of a node in one direction, in GB/s (1e9 bytes); needed for more than one node",
    ),
    of(training::FRAMEWORKS, needed("framework", "the software")),
    of(
        training::STRATEGIES,
        needed("strategy", "how the state is shared out"),
    ),
    blank(
        "tp",
        "tensor parallelism: GPUs that share each matrix; blank: 1",
    ),
    blank("pp", "pipeline parallelism: stages; blank: 1"),
    blank("vpp", "chunks of each stage (interleaving); blank: 1"),
    blank(
        "cp",
        "context parallelism: GPUs that share each sequence; blank: 1",
    ),
    blank(
        "ep",
        "expert parallelism: GPUs that share the experts; blank: 1",
    ),
    of(
        training::RECOMPUTATIONS,
        needed(
            "recompute",
            "what is computed again in the backward pass; may be blank: none",
        ),
    ),
    blank(
        "flops_mult",
        "floating-point operations per parameter and token; blank: 6, adapters need fewer",
    ),
    blank(
        "source_version",
        "the release of the software, such as `26.04 NeMo Container`; blank: of today",
    ),
];

const INFERENCE: &[Column] = &[
    of(inference::METRICS, needed("metric", "what was measured")),
    MODEL,
    PARAMS_B,
    ACTIVE_B,
    LAYERS,
    HIDDEN,
    HEADS,
    blank(
        "kv_heads",
        "heads that keep keys and values; blank: as many as `heads`",
    ),
    needed("isl", "tokens of a prompt"),
    needed("osl", "tokens of an answer"),
    blank(
        "concurrency",
        "requests in flight; blank: as many as the memory holds, and 1 for times",
    ),
    blank(
        "num_requests",
        "requests of the whole test; blank: no end of them",
    ),
    of(
        inference::WEIGHTS,
        needed("weight_precision", "of the weights"),
    ),
    of(
        inference::CACHES,
        needed("kv_precision", "of the key-value cache"),
    ),
    GPU,
    needed("gpus", "GPUs of the machine"),
    blank(
        "tp",
        "tensor parallelism: GPUs that share each matrix; needed but for mlperf_…",
    ),
    blank(
        "pp",
        "pipeline parallelism: stages; needed but for mlperf_…",
    ),
    of(
        inference::FRAMEWORKS,
        needed("framework", "the engine and its age"),
    ),
    blank(
        "tpot_limit_ms",
        "the longest that a token may take, in milliseconds; for mlperf_…",
    ),
    blank(
        "unit",
        "the unit to repeat in the answer; blank: that of the metric",
    ),
];

impl Table {
    /// The columns that are read; others are ignored.
    #[must_use]
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Training => TRAINING,
            Self::Inference => INFERENCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::de::{Deserialize, Deserializer, Error as _, Visitor, value};
    use serde::forward_to_deserialize_any;

    use super::*;

    /// Reads nothing, and records the fields that a struct would have read.
    struct FieldNames<'a>(&'a mut Vec<&'static str>);

    impl<'de> Deserializer<'de> for FieldNames<'_> {
        type Error = value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(value::Error::custom("it is no struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            self.0.extend_from_slice(fields);
            Err(value::Error::custom("its fields are known now"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn read_by<Row: for<'de> Deserialize<'de>>() -> BTreeSet<&'static str> {
        let mut fields = Vec::new();
        assert!(Row::deserialize(FieldNames(&mut fields)).is_err());
        fields.into_iter().collect()
    }

    #[test]
    fn every_column_that_is_read_is_described_and_no_other() {
        let described = |table: Table| {
            let names = table.columns().iter().map(|column| column.name);
            names.collect::<BTreeSet<_>>()
        };
        assert_eq!(described(Table::Training), read_by::<training::Row>());
        assert_eq!(described(Table::Inference), read_by::<inference::Row>());
    }
}
