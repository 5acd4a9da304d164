use std::io::Write as _;
use std::path::PathBuf;

use super::*;

/// The measured tables, where they are.
fn tables() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/perf");
    let there = folder.join("training_measured.csv").exists();
    if !there {
        // Not a print macro: the test runner hides the output of a passing test.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: needs the measured tables in ../shared/perf"
        );
    }
    there.then_some(folder)
}

fn held_out(table: Table, folder: &Path) -> (Vec<Measured>, CrossValidated) {
    let rows = measured::load(table, folder).expect("a table");
    let priors = solver::priors(table).expect("priors");
    let problem = Problem::new(table, &priors, Constants::product()).expect("a problem");
    let errors = judge::cross_validate(&problem, &rows, SEED).expect("fits");
    (rows, errors)
}

#[test]
fn held_out_folds_meet_the_goals_and_lie_within_their_intervals_as_often_as_promised() {
    let Some(folder) = tables() else { return };
    for (table, median, p90) in [
        (Table::Training, 0.09, 0.29),
        (Table::Inference, 0.13, 0.33),
    ] {
        let (rows, errors) = held_out(table, &folder);
        let score = errors.score(&rows, |_| true);
        assert!(score.median <= median, "{table:?} {score:?}");
        assert!(score.p90 <= p90, "{table:?} {score:?}");
        assert!(score.tau >= 0.92, "{table:?} {score:?}");
        let covered = errors.coverage(&rows);
        assert!((0.76..=0.84).contains(&covered), "{table:?} {covered}");
    }
}

#[test]
fn the_constants_are_what_a_fit_to_the_tables_gives() {
    let Some(folder) = tables() else { return };
    for table in [Table::Training, Table::Inference] {
        let rows = measured::load(table, &folder).expect("a table");
        let priors = solver::priors(table).expect("priors");
        let product = Constants::product();
        let problem = Problem::new(table, &priors, product).expect("a problem");
        let fitted = problem
            .fit(&rows.iter().collect::<Vec<_>>())
            .expect("a fit");
        let value = |constants: &Constants, name: &str| {
            let all = serde_json::to_value(constants).expect("JSON");
            all[solver::part(table)][name].as_f64().expect("a number")
        };
        for prior in &priors {
            let name = &prior.constant;
            let (now, then) = (value(&fitted, name), value(product, name));
            assert!(
                (now / then - 1.0).abs() < 1e-3,
                "{table:?} {name} {now} {then}"
            );
        }
    }
}

#[test]
fn a_constant_stays_at_its_bound_where_the_rows_ask_for_more() {
    let Some(folder) = tables() else { return };
    let rows = measured::load(Table::Inference, &folder).expect("a table");
    let share = |most: Option<f64>| {
        let mut priors = solver::priors(Table::Inference).expect("priors");
        priors.retain(|prior| prior.constant == "pipeline_prompt_share");
        assert_eq!(priors[0].most, Some(1.0));
        priors[0].most = most;
        let problem = Problem::new(Table::Inference, &priors, Constants::product());
        let fitted = problem
            .expect("a problem")
            .fit(&rows.iter().collect::<Vec<_>>());
        fitted.expect("a fit").inference.pipeline_prompt_share
    };
    assert!(share(None) > 1.01);
    assert_eq!(share(Some(1.0)), 1.0);
    assert!((share(Some(0.9)) - 0.9).abs() < 1e-12);
}

#[test]
fn the_terms_of_the_reference_are_those_that_its_constants_do_not_switch_off() {
    let all = serde_json::to_value(Constants::reference()).expect("JSON");
    for table in [Table::Training, Table::Inference] {
        let value = |name: &str| all[solver::part(table)][name].as_f64().expect("a number");
        for prior in solver::priors(table).expect("priors") {
            match &prior.reference {
                Some(own) => assert_eq!(value(&prior.constant), value(own), "{}", prior.constant),
                None => assert!(
                    [0.0, 1.0].contains(&value(&prior.constant)),
                    "{}",
                    prior.constant
                ),
            }
        }
    }
    // As many as the authors fitted.
    let own = |table| solver::reference_priors(table).expect("priors").len();
    assert_eq!((own(Table::Training), own(Table::Inference)), (30, 33));
}

#[test]
fn what_the_reference_has_as_one_is_fitted_as_one() {
    let Some(folder) = tables() else { return };
    let rows = measured::load(Table::Training, &folder).expect("a table");
    let priors = solver::reference_priors(Table::Training).expect("priors");
    let problem = Problem::new(Table::Training, &priors, Constants::reference());
    let few: Vec<_> = rows.iter().step_by(8).collect();
    let fitted = problem
        .expect("a problem")
        .fit(&few)
        .expect("a fit")
        .training;
    let reference = &Constants::reference().training;
    assert_ne!(fitted.sustained_other, reference.sustained_other);
    assert_eq!(fitted.sustained_cdna, fitted.sustained_other);
    assert_eq!(fitted.b300_factor, 1.0);
}

#[test]
fn folds_keep_combinations_whole_and_are_settled_by_the_seed() {
    let Some(folder) = tables() else { return };
    let rows = measured::load(Table::Training, &folder).expect("a table");
    let dealt = measured::folds(&rows, 5, 1);
    for (row, fold) in rows.iter().zip(&dealt) {
        for (other, other_fold) in rows.iter().zip(&dealt) {
            assert!(row.combination() != other.combination() || fold == other_fold);
        }
    }
    assert_eq!(dealt, measured::folds(&rows, 5, 1));
    assert_ne!(dealt, measured::folds(&rows, 5, 2));
    assert!((0..5).all(|fold| dealt.contains(&fold)));
}

#[test]
fn percentiles_and_conformal_widths_are_those_of_small_examples() {
    let values = [4.0, 1.0, 3.0, 2.0];
    assert_eq!(judge::percentile(&values, 0.5), 2.5);
    assert_eq!(judge::percentile(&values, 1.0), 4.0);
    // The eighth of nine: with one more to come, four of five lie within.
    let errors: Vec<f64> = (1..=9).map(|size| -f64::from(size)).collect();
    assert_eq!(judge::half_width(&errors), 8.0);
    let agreeing = [(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)];
    assert_eq!(judge::score(&agreeing).tau, 1.0);
    assert_eq!(judge::score(&[(1.0, 3.0), (2.0, 0.0)]).tau, -1.0);
}

#[test]
fn every_kind_and_every_weak_spot_has_rows_that_are_not_all() {
    let Some(folder) = tables() else { return };
    for table in [Table::Training, Table::Inference] {
        let rows = measured::load(table, &folder).expect("a table");
        let all = kinds::kinds(table).into_iter();
        for (name, wanted) in all.chain(kinds::weak_spots(table)) {
            let count = rows.iter().filter(|row| wanted(row)).count();
            assert!(0 < count && count < rows.len(), "{name}: {count}");
        }
    }
}

#[test]
fn what_is_left_out_whole_has_a_number_of_its_own() {
    let Some(folder) = tables() else { return };
    let rows = measured::load(Table::Inference, &folder).expect("a table");
    let numbers = judge::numbered(&rows, |row| &row.source);
    for (row, number) in rows.iter().zip(&numbers) {
        for (other, others) in rows.iter().zip(&numbers) {
            assert_eq!(row.source == other.source, number == others);
        }
    }
}

#[test]
fn a_goal_that_some_deal_of_the_folds_misses_is_told() {
    let good = judge::score(&[(1.0, 0.0), (2.0, 0.0)]);
    let bad = judge::Score { p90: 0.30, ..good };
    let goals = report::goals(Table::Training);
    assert_eq!(report::missed(&goals, &[&good, &good]), "");
    assert_eq!(
        report::missed(&goals, &[&good, &bad]).trim(),
        "The goal for the P90 is missed with 1 of the 2 deals of the folds."
    );
}

#[test]
fn what_is_no_better_than_the_reference_is_told_as_what_is() {
    let good = judge::score(&[(1.0, 0.0), (2.0, 0.0)]);
    let bad = judge::Score { p90: 0.30, ..good };
    let worst = judge::Score {
        median: 0.20,
        tau: 0.5,
        ..bad
    };
    for (product, reference, words) in [
        (good, good, "better in none of the median, the P90 and tau."),
        (
            good,
            bad,
            "better in the P90, and no better in the median and tau.",
        ),
        (bad, good, "better in none of the median, the P90 and tau."),
        (good, worst, "are better in the median, the P90 and tau."),
    ] {
        let told = report::against(&product, &reference);
        assert!(told.contains(words), "{told}");
    }
}
