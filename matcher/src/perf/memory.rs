//! Memory: bytes of weights and of training state. [`super::replica`] computes the key-value cache, which
//! follows its layout.
//!
//! GB are 1e9 bytes throughout. A GPU's memory counts as marketed, which is the smaller reading of it.

use market::demand::{Precision, TrainMethod};

use crate::models::ModelFigures;

/// The share of a GPU's memory that training may fill; the rest is lost to fragmentation.
pub const TRAINING_FRACTION: f64 = 0.92;

/// Memory that the runtime and its workspace take on each training GPU. Units: bytes.
pub(crate) const RUNTIME_BYTES: f64 = 3e9;

/// Bytes a parameter of 16-bit weights and gradients. Source: Rajbhandari et al. 2020 (ZeRO).
pub(crate) const WEIGHT_AND_GRADIENT_BYTES: f64 = 4.0;

/// Bytes a parameter of 32-bit weights and Adam's two moments. Source: the same.
pub(crate) const OPTIMISER_STATE_BYTES: f64 = 12.0;

/// Bytes a parameter in full training with Adam in mixed precision.
const ADAM_BYTES: f64 = WEIGHT_AND_GRADIENT_BYTES + OPTIMISER_STATE_BYTES;

/// Adapters as a share of all parameters: above the usual ranks, so that the sum is on the safe
/// side. They are trained in full, at [`ADAM_BYTES`] each.
const ADAPTER_SHARE: f64 = 0.01;

/// Bytes of one number of 4 bits; each block of 16 carries a scale of 8 bits.
pub(crate) const BLOCK_SCALED_BYTES: f64 = 0.5625;

/// Bytes of one weight in memory, including scales.
#[must_use]
pub fn bytes_per_weight(precision: Precision) -> f64 {
    match precision {
        Precision::Fp4 | Precision::Int4 => BLOCK_SCALED_BYTES,
        wider => wider.bytes(),
    }
}

/// Bytes of all weights of a model, at so many bytes each; a separate input embedding is not narrower than 8
/// bits.
#[must_use]
pub fn weight_bytes(model: &ModelFigures, bytes_per_weight: f64) -> f64 {
    let multiplied = model.params_total - model.embedding_params;
    multiplied * bytes_per_weight + model.embedding_params * bytes_per_weight.max(1.0)
}

/// Bytes of weights, gradients and optimiser for each parameter of the model.
pub(crate) fn state_bytes_per_param(method: TrainMethod) -> f64 {
    match method {
        TrainMethod::Full => ADAM_BYTES,
        TrainMethod::Lora | TrainMethod::Qlora => {
            frozen_weight_bytes(method) + ADAPTER_SHARE * ADAM_BYTES
        }
    }
}

/// Bytes of a weight that is not trained; nothing is frozen in full training.
pub(crate) fn frozen_weight_bytes(method: TrainMethod) -> f64 {
    match method {
        TrainMethod::Full => 0.0,
        TrainMethod::Lora => bytes_per_weight(Precision::Bf16),
        TrainMethod::Qlora => bytes_per_weight(Precision::Int4),
    }
}

/// Bytes of a checkpoint from which a run can resume: 16-bit weights and the optimiser's state of the trained
/// parameters. Gradients are computed again, and frozen weights are loaded from their source.
#[must_use]
pub fn checkpoint_bytes(model: &ModelFigures, method: TrainMethod) -> f64 {
    let trained = match method {
        TrainMethod::Full => 1.0,
        TrainMethod::Lora | TrainMethod::Qlora => ADAPTER_SHARE,
    };
    let each = bytes_per_weight(Precision::Bf16) + OPTIMISER_STATE_BYTES;
    model.params_total * trained * each
}

/// Memory of a training run, split into state that is sharded and memory that each GPU needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingMemory {
    /// Weights, gradients and optimiser state, sharded over all GPUs. Units: bytes.
    pub state_bytes: f64,
    /// Activations and runtime of each GPU. Units: bytes.
    pub bytes_per_gpu: f64,
}

impl TrainingMemory {
    /// The least memory in which a run can be laid out: state sharded over all GPUs, one sequence
    /// at a time, activations recomputed from each layer's input and split over the
    /// `tensor_parallel` GPUs of a group.
    ///
    /// Per GPU that keeps 2 bytes for each token, hidden unit and layer, and 34 for the one layer
    /// that is being recomputed. Source: Korthikanti et al. 2022.
    #[must_use]
    pub fn of(
        model: &ModelFigures,
        method: TrainMethod,
        sequence_length: u32,
        tensor_parallel: u32,
    ) -> Self {
        let tokens_times_width = f64::from(sequence_length) * f64::from(model.hidden);
        let activations = tokens_times_width * (2.0 * f64::from(model.layers) + 34.0);
        Self {
            state_bytes: model.params_total * state_bytes_per_param(method),
            bytes_per_gpu: activations / f64::from(tensor_parallel) + RUNTIME_BYTES,
        }
    }

    /// Total bytes over so many GPUs.
    #[must_use]
    pub fn total_bytes(&self, gpus: u32) -> f64 {
        self.state_bytes + self.bytes_per_gpu * f64::from(gpus)
    }

    /// The fewest GPUs of this memory (GB) that hold it; `None` where no number does.
    #[must_use]
    pub fn fewest_gpus(&self, memory_gb: f64) -> Option<f64> {
        let room = memory_gb * 1e9 * TRAINING_FRACTION - self.bytes_per_gpu;
        if room <= 0.0 {
            None
        } else {
            Some((self.state_bytes / room).ceil().max(1.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use market::demand::Model;
    use proptest::prelude::*;

    use super::*;

    fn model(name: &str) -> ModelFigures {
        ModelFigures::of(&Model::Named(name.into())).expect("a known model")
    }

    fn full(name: &str, sequence_length: u32) -> TrainingMemory {
        TrainingMemory::of(&model(name), TrainMethod::Full, sequence_length, 8)
    }

    // S06
    #[test]
    fn the_state_of_405b_fits_64_gpus_of_141_gb_and_not_of_80_gb() {
        let memory = full("Llama 3.1 405B", 8_192);
        assert!(
            (6.4e12..6.6e12).contains(&memory.state_bytes),
            "{}",
            memory.state_bytes
        );
        assert!(memory.fewest_gpus(80.0).expect("some number does") > 64.0);
        assert!(memory.fewest_gpus(141.0).expect("some number does") <= 64.0);
    }

    #[test]
    fn adapters_over_frozen_weights_need_an_eighth_and_quantised_ones_a_twentieth() {
        let llama = model("Llama 3 70B");
        let state = |method| TrainingMemory::of(&llama, method, 4_096, 1).state_bytes / 1e9;
        assert!((state(TrainMethod::Full) - 1_128.9).abs() < 0.1);
        assert!((state(TrainMethod::Lora) - 152.4).abs() < 0.1);
        assert!((state(TrainMethod::Qlora) - 51.0).abs() < 0.1);
    }

    // S27
    #[test]
    fn quantised_adapters_of_a_7b_fit_one_gpu_of_24_gb_and_full_training_does_not() {
        let fewest =
            |method| TrainingMemory::of(&model("Llama 2 7B"), method, 2_048, 1).fewest_gpus(24.0);
        assert_eq!(fewest(TrainMethod::Qlora), Some(1.0));
        assert!(fewest(TrainMethod::Full).expect("some number does") > 1.0);
    }

    #[test]
    fn activations_that_fill_a_gpu_fit_on_no_number_of_them() {
        let memory = TrainingMemory::of(&model("Llama 3 70B"), TrainMethod::Full, 1_000_000, 1);
        assert_eq!(memory.fewest_gpus(80.0), None);
    }

    #[test]
    fn four_bit_weights_weigh_their_scales_too_and_an_embedding_of_its_own_stays_wider() {
        let each = bytes_per_weight(Precision::Int4);
        let embedding = 128_256.0 * 8_192.0;
        for (name, bytes) in [
            ("Llama 3 70B", (70.554e9 - embedding) * 0.5625 + embedding),
            // The output head is the same table.
            ("Qwen3 4B", 4.022e9 * 0.5625),
        ] {
            let found = weight_bytes(&model(name), each);
            assert!((found / bytes - 1.0).abs() < 1e-12, "{name} {found}");
        }
    }

    proptest! {
        #[test]
        fn a_longer_sequence_never_needs_less(short in 1_u32..100_000, more in 0_u32..100_000) {
            prop_assert!(full("Llama 3 8B", short).total_bytes(8) <= full("Llama 3 8B", short + more).total_bytes(8));
        }

        #[test]
        fn the_fewest_gpus_hold_it_and_one_less_does_not(
            sequence_length in 1_u32..40_000, memory_gb in 16.0_f64..300.0,
        ) {
            let memory = full("Llama 3 70B", sequence_length);
            if let Some(fewest) = memory.fewest_gpus(memory_gb) {
                let fits = |gpus: f64| {
                    memory.state_bytes / gpus + memory.bytes_per_gpu <= memory_gb * 1e9 * TRAINING_FRACTION * (1.0 + 1e-12)
                };
                prop_assert!(fits(fewest));
                prop_assert!(fewest == 1.0 || !fits((fewest - 1.0) * (1.0 - 1e-12)));
            }
        }
    }
}
