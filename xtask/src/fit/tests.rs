use std::io::Write as _;
use std::path::PathBuf;

use super::*;

/// The measured tables, where they are.
fn tables() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/perf");
    let there = folder.join("training_measured.csv").exists();
    if !there {
        // Not a print macro: those of a passing test are kept from the reader.
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
