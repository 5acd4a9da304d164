//! The lies that the tests tell, as the documentation lists them.

use market::attestation::FindingCode;

use FindingCode as Code;

/// A lie, by the name of its test.
pub struct Lie {
    pub test: &'static str,
    pub what: &'static str,
    pub how: &'static str,
    /// The codes that the broker finds; none where it refuses the step.
    pub codes: &'static [FindingCode],
}

pub const LIES: &[Lie] = &[
    Lie {
        test: "fewer_gpus_than_sold_are_refused",
        what: "fewer GPUs than sold",
        how: "the driver shows one GPU of two",
        codes: &[Code::InventoryCount, Code::InventorySources],
    },
    Lie {
        test: "one_gpu_that_poses_as_five_is_refused",
        what: "fewer GPUs than sold",
        how: "both libraries show five GPUs that are one chip and take turns, at the rate of an H200",
        codes: &[Code::StepTimedOut],
    },
    Lie {
        test: "smaller_memory_is_refused",
        what: "smaller memory",
        how: "80 GiB are reported and 40 can be had",
        codes: &[Code::MemoryCapacity],
    },
    Lie {
        test: "memory_that_is_not_there_is_refused",
        what: "smaller memory",
        how: "all of it can be had, half of it holds nothing, and comparing it finds nothing wrong",
        codes: &[Code::MemoryProof],
    },
    Lie {
        test: "memory_that_is_made_anew_when_asked_for_is_refused",
        what: "smaller memory",
        how: "half of it holds what was filled, the rest is recomputed once the key is known",
        codes: &[Code::StepTimedOut],
    },
    Lie {
        test: "memory_that_was_filled_before_it_was_known_with_what_is_refused",
        what: "smaller memory",
        how: "what is filled follows from the nonce, which was known from the beginning",
        codes: &[Code::MemoryProof, Code::AgentReport],
    },
    Lie {
        test: "a_management_library_that_names_another_gpu_is_refused",
        what: "lying NVML",
        how: "an A100 under the name, the memory and the limits of an H100",
        codes: &[Code::InventoryIdentity],
    },
    Lie {
        test: "a_management_library_that_counts_more_gpus_is_refused",
        what: "lying NVML",
        how: "NVML shows two GPUs, CUDA computes on one",
        codes: &[Code::InventoryCount, Code::InventorySources],
    },
    Lie {
        test: "a_replayed_conversation_is_refused",
        what: "replayed report",
        how: "all that a good machine once said, word for word, under its own key",
        codes: &[Code::MemoryProof, Code::SdcExact, Code::AgentReport],
    },
    Lie {
        test: "a_replayed_report_is_refused",
        what: "replayed report",
        how: "the good report of another conversation at the end of this one",
        codes: &[Code::AgentSignature],
    },
    Lie {
        test: "an_answer_that_comes_too_late_is_refused",
        what: "answer too late",
        how: "right answers, one second after the deadline by the broker's clock",
        codes: &[Code::StepTimedOut],
    },
    Lie {
        test: "an_agent_that_skips_the_memory_is_refused",
        what: "an agent that skips work",
        how: "memory is neither filled nor compared",
        codes: &[Code::MemoryProof],
    },
    Lie {
        test: "an_agent_that_skips_the_product_is_refused",
        what: "an agent that skips work",
        how: "nothing is multiplied",
        codes: &[Code::SdcExact],
    },
    Lie {
        test: "a_driver_that_skips_the_chain_is_refused",
        what: "a driver that skips work",
        how: "of the chained products the first is computed, the others only where they are opened",
        codes: &[Code::SdcExact],
    },
    Lie {
        test: "an_agent_that_shrinks_the_product_is_refused",
        what: "an agent that shrinks work",
        how: "half of the inner dimension is summed",
        codes: &[Code::SdcExact],
    },
    Lie {
        test: "a_driver_that_streams_through_half_of_the_memory_is_refused",
        what: "a driver that shrinks work",
        how: "memory of half the rate shows the whole: of what is copied, read or added up half is",
        codes: &[Code::SdcRepeat],
    },
    Lie {
        test: "an_agent_that_is_given_a_smaller_order_is_refused",
        what: "an agent that shrinks work",
        how: "somebody on the way writes half the memory and one repeat into the order",
        codes: &[
            Code::MemoryCapacity,
            Code::MemoryProof,
            Code::SdcRepeat,
            Code::AgentReport,
        ],
    },
    Lie {
        test: "an_agent_that_relays_work_is_refused_when_the_way_takes_time",
        what: "an agent that relays work",
        how: "every question goes to a machine far away, whose answers come a minute later",
        codes: &[Code::StepTimedOut],
    },
    Lie {
        test: "an_agent_that_lets_another_speak_is_refused",
        what: "an agent that relays work",
        how: "one agent commits, the agent of another machine answers",
        codes: &[],
    },
    Lie {
        test: "a_preloaded_shim_is_refused",
        what: "`LD_PRELOAD` shim",
        how: "a library stands before the driver's in every program (`LD_PRELOAD`), or watches the loader (`LD_AUDIT`), and halves times",
        codes: &[Code::InventorySoftware],
    },
];

pub fn lie(test: &str) -> &'static Lie {
    let found = LIES.iter().find(|lie| lie.test == test);
    found.unwrap_or_else(|| panic!("{test} stands in the table"))
}
