//! `broker gpus` and `broker models`.

use super::{Place, fields};

#[test]
fn the_gpus_and_models_that_are_known_are_listed_without_a_server() {
    let place = Place::new();
    let gpus = place.broker(["gpus", "--json"]).json(0);
    let gpus = gpus["items"].as_array().expect("items");
    let h100 = gpus.iter().find(|gpu| gpu["canonical"] == "H100-SXM");
    assert_eq!(h100.expect("a known one")["memory_gb"], 80.0);
    let models = place.broker(["models", "--json"]).json(0);
    let models = models["items"].as_array().expect("items");
    let llama = models.iter().find(|model| model["name"] == "Llama 3.1 70B");
    let llama = llama.expect("a known one");
    assert!(fields(llama).contains(&"kv_elements_per_token"));
    assert_eq!(llama["layers"], 80);
    for (command, known) in [("gpus", "H100-SXM"), ("models", "Llama 3.1 70B")] {
        let ended = place.broker([command]);
        assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
        assert!(ended.stdout.contains(known), "{}", ended.stdout);
        let widest = ended.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{}", ended.stdout);
    }
}

#[test]
fn whoever_names_an_unknown_gpu_or_model_is_told_where_the_known_ones_are_listed() {
    let place = Place::new();
    let list = place.write("list.csv", super::HEADER);
    let args = [
        "match",
        "--demand",
        "-",
        "--offers",
        list.to_str().expect("a path"),
    ];
    for (demand, command) in [
        (
            r#"{"kind":"gpus","gpu":"Warp 9","count":1}"#,
            "`broker gpus`",
        ),
        (
            r#"{"kind":"train","model":"Warp 9","tokens":1000}"#,
            "`broker models`",
        ),
    ] {
        let ended = place.broker_reading(demand, args);
        assert!(ended.refused().contains(command), "{ended:?}");
    }
}
