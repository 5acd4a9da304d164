//! The bill, against arithmetic done here in whole numbers of 1e-8 dollars.

use rust_decimal::Decimal;
use simulator::Provider;

use crate::stage::{INFINIBAND, LOCATION, Stage, a10, rental};

/// Cents per hour for this many seconds, in 1e-8 dollars, half to even.
fn expected_units(cents_per_hour: i128, seconds: i128) -> i128 {
    let (numerator, denominator) = (cents_per_hour * 1_000_000 * seconds, 3600);
    let (whole, rest) = (numerator / denominator, numerator % denominator);
    let up = rest * 2 > denominator || (rest * 2 == denominator && whole % 2 == 1);
    whole + i128::from(up)
}

fn units(amount: Decimal) -> i128 {
    let scaled = amount * Decimal::from(100_000_000);
    assert_eq!(scaled.fract(), Decimal::ZERO);
    scaled.try_into().unwrap()
}

#[tokio::test]
async fn each_second_from_launch_to_accepted_end_is_billed_at_the_price_of_the_launch() {
    let stage = Stage::new().await;
    stage.add_key().await;
    let vm = stage.launch(&a10("vm")).await;
    stage
        .simulator
        .set_price(Provider::LAMBDA, "gpu_1x_a10", Decimal::new(999, 2))
        .unwrap();
    stage.clock.turn(7);
    stage.rent(&rental("metal", 3)).await;
    stage.clock.turn(1_234);
    stage.terminate(&vm).await;
    stage.clock.turn(100_000);

    let bill = stage.simulator.bill(Provider::LAMBDA);
    assert_eq!(bill.lines.len(), 1);
    let line = &bill.lines[0];
    assert_eq!(
        (
            line.id.as_str(),
            line.name.as_str(),
            line.seconds,
            line.open
        ),
        (vm.as_str(), "vm", 1_241, false)
    );
    assert_eq!(units(line.amount_usd), expected_units(129, 1_241));
    assert_eq!(bill.total_usd, line.amount_usd);

    let bill = stage.simulator.bill(Provider::VOLTAGEPARK);
    let line = &bill.lines[0];
    assert_eq!(
        (line.name.as_str(), line.seconds, line.open),
        ("metal", 101_234, true)
    );
    assert_eq!(line.price_usd_hour, Decimal::new(249 * 24, 2));
    assert_eq!(units(line.amount_usd), expected_units(249 * 24, 101_234));
}

#[tokio::test]
async fn amounts_agree_with_whole_number_arithmetic_at_every_length() {
    let stage = Stage::new().await;
    stage.add_key().await;
    stage.launch(&a10("vm")).await;
    let mut seconds = 0;
    for step in [0, 1, 1, 5, 18, 575, 3_000, 3_599, 86_401, 2_592_000] {
        stage.clock.turn(step);
        seconds += i128::from(step);
        assert_eq!(
            units(stage.simulator.bill(Provider::LAMBDA).total_usd),
            expected_units(129, seconds),
            "{seconds} s"
        );
    }
}

#[tokio::test]
async fn a_machine_of_someone_else_is_listed_billed_and_marked() {
    let stage = Stage::new().await;
    let id = stage
        .simulator
        .add_foreign_machine(Provider::VOLTAGEPARK, INFINIBAND, LOCATION, 2, "not ours")
        .unwrap();
    stage.clock.turn(3_600);
    let machines = stage.simulator.running_machines();
    assert_eq!(machines.len(), 1);
    assert!(machines[0].foreign && machines[0].id == id && machines[0].nodes == 2);
    assert_eq!(
        stage.voltagepark("/bare-metal/").await["results"][0]["name"],
        "not ours"
    );
    let bill = stage.simulator.bill(Provider::VOLTAGEPARK);
    assert!(bill.lines[0].foreign);
    assert_eq!(units(bill.total_usd), expected_units(249 * 16, 3_600));
    assert!(stage.simulator.launches(Provider::VOLTAGEPARK)[0].foreign);
    assert!(
        stage
            .simulator
            .add_foreign_machine(Provider::VOLTAGEPARK, INFINIBAND, LOCATION, 7, "too many")
            .is_err()
    );
    assert!(
        stage
            .simulator
            .add_foreign_machine(Provider::LAMBDA, "gpu_1x_none", "us-east-1", 1, "unsold")
            .is_err()
    );
}

#[tokio::test]
async fn prices_and_capacities_that_cannot_be_are_refused() {
    let stage = Stage::new().await;
    assert!(
        stage
            .simulator
            .set_price(Provider::LAMBDA, "gpu_1x_a10", Decimal::new(12_345, 4))
            .is_err(),
        "parts of a cent"
    );
    assert!(
        stage
            .simulator
            .set_price(Provider::VOLTAGEPARK, INFINIBAND, Decimal::ZERO)
            .is_err()
    );
    assert!(
        stage
            .simulator
            .set_price(Provider::LAMBDA, "gpu_1x_none", Decimal::ONE)
            .is_err()
    );
    assert!(
        stage
            .simulator
            .set_place_capacity(Provider::LAMBDA, "gpu_1x_a10", "mars-1", 1)
            .is_err()
    );
    stage
        .simulator
        .set_price(Provider::VOLTAGEPARK, INFINIBAND, Decimal::new(25_125, 4))
        .unwrap();
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["results"][1]["gpu_price_infiniband"],
        "2.5125"
    );
}
