//! Public reports of workloads that fit on a machine or do not, each on a list of this one machine. They were
//! chosen because the reports are clear; they are no sample and give no rate. Another source states that the
//! thirteenth takes twice as many GPUs; the same run on 16 H100 is in the tables of NeMo 24.07.

use serde_json::{Value, json};

use super::{TWO_PRICES, list, plan};

/// A chat of one model: so many tokens in and out, and requests at once.
fn serve(model: &str, weights: &str, (input, output, at_once): (u32, u32, u32)) -> Value {
    json!({
        "kind": "serve_realtime", "model": model, "weights": weights, "input_tokens": input,
        "output_tokens": output, "concurrency": at_once,
    })
}

/// A run on so many GPUs; by default on as many as it needs.
fn train(model: &str, gpus: Option<u32>, sequence: u32, more: Value) -> Value {
    let mut demand = json!({
        "kind": "train", "model": model, "gpus": gpus, "sequence_length": sequence,
        "tokens": 1_000_000_000,
    });
    let more = more.as_object().expect("an object").clone();
    demand.as_object_mut().expect("an object").extend(more);
    demand
}

#[test]
fn what_people_report_to_fit_fits_and_what_ran_out_of_memory_does_not() {
    let none = || json!({});
    for (source, machine, fabric, demand, fits) in [
        (
            "lmdeploy issue 2960",
            "H800-SXM,8",
            "",
            serve("DeepSeek V3", "fp8", (2_000, 500, 1)),
            false,
        ),
        (
            "lmdeploy issue 2960",
            "H20,8",
            "",
            serve("DeepSeek V3", "fp8", (2_000, 500, 1)),
            true,
        ),
        (
            "vllm issue 13582",
            "H200-SXM,8",
            "",
            serve("DeepSeek R1", "fp8", (8_000, 1_000, 4)),
            true,
        ),
        (
            "vllm issue 13074",
            "H200-SXM,8",
            "",
            serve("DeepSeek R1", "bf16", (15_000, 1_000, 1)),
            false,
        ),
        (
            "vllm issue 3285",
            "RTX-4090,4",
            "",
            serve("Mixtral 8x7B", "fp16", (800, 200, 1)),
            false,
        ),
        (
            "vllm issue 3285",
            "RTX-4090,4",
            "",
            serve("Mixtral 8x7B", "int4", (800, 200, 1)),
            true,
        ),
        (
            "vllm issue 11147",
            "RTX-A6000,6",
            "",
            serve("Llama 3.1 70B", "bf16", (4_000, 1_000, 1)),
            true,
        ),
        (
            "vllm issue 10517",
            "H100-SXM,2",
            "",
            serve("Llama 3.1 70B", "fp16", (16_000, 4_000, 1)),
            true,
        ),
        (
            "kvcached issue 210",
            "A100-SXM-40,8",
            "",
            serve("Llama 3.1 70B", "bf16", (31_000, 1_000, 1)),
            true,
        ),
        (
            "AdaptThink issue 1",
            "H100-SXM,8",
            "",
            serve("Qwen2.5 7B", "bf16", (3_000, 500, 4)),
            true,
        ),
        (
            "LlamaFactory issue 2959",
            "A800-SXM-80,8",
            "ib_hdr200",
            train("Qwen2.5 72B", Some(16), 1_024, none()),
            false,
        ),
        (
            "llama-cookbook issue 120",
            "V100-SXM2-32,16",
            "",
            train("Llama 2 70B", Some(16), 2_048, json!({"precision": "fp16"})),
            false,
        ),
        (
            "NeMo 24.07",
            "H100-SXM,8",
            "ib_ndr400",
            train("Llama 2 70B", Some(16), 4_096, json!({"precision": "fp8"})),
            true,
        ),
        (
            "Megatron-LLM issue 52",
            "A100-SXM-80,8",
            "ib_hdr200",
            train("Llama 2 70B", None, 4_096, none()),
            true,
        ),
        (
            "dgxc-benchmarking",
            "H100-SXM,8",
            "",
            train("Llama 3 70B", Some(8), 4_096, json!({"method": "lora"})),
            true,
        ),
        (
            "torchtune",
            "RTX-4090,1",
            "",
            train("Llama 3.1 8B", Some(1), 2_048, json!({"method": "qlora"})),
            true,
        ),
        (
            "torchtune",
            "A100-SXM-80,8",
            "",
            train("Llama 3.1 405B", Some(8), 2_048, json!({"method": "qlora"})),
            true,
        ),
        (
            "dgxc-benchmarking",
            "H100-SXM,8",
            "ib_ndr400",
            train("DeepSeek V3", Some(512), 4_096, none()),
            true,
        ),
    ] {
        let header = format!("{TWO_PRICES},fabric");
        let row = format!("acme,node,{machine},96,1024,,10,,US,,{fabric}");
        let plan = plan(&[list("list.csv", &header, &[&row])], &demand);
        let why: Vec<_> = plan.refused.iter().map(|one| &one.why).collect();
        assert_eq!(
            plan.eligible == 1,
            fits,
            "{source}: {demand} on {machine}: {why:?}"
        );
    }
}
