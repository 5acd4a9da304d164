//! Tests that a habit runs by their names. Where none has such a name, `cargo test` runs nothing and is
//! content, so a test of this crate sees that each is there.

/// Tests of a package, by a part of their names.
pub(crate) struct Named {
    /// Where the package lies, which is what it is called.
    pub(crate) package: &'static str,
    /// The end of a test's path.
    pub(crate) name: &'static str,
}

const fn named(package: &'static str, name: &'static str) -> Named {
    Named { package, name }
}

/// Kills replicas, PostgreSQL and Redis; then a broker on its embedded database; then fronts stand before the
/// providers of real replicas.
pub(crate) const CHAOS: [Named; 3] = [
    named(
        "broker",
        "kills_of_real_replicas_and_of_their_servers_at_any_moment_lose_no_acknowledged_work",
    ),
    named(
        "broker",
        "kills_of_a_real_broker_on_its_embedded_database_lose_no_acknowledged_work",
    ),
    named(
        "broker",
        "real_replicas_keep_every_machine_whatever_stands_in_front_of_the_providers",
    ),
];
/// Calls that name what another tenant has.
pub(crate) const CROSS_TENANT: Named = named(
    "broker",
    "random_calls_read_and_touch_nothing_of_another_tenant",
);
/// Schedules of holds, confirms, cancels and lapses.
pub(crate) const HOLDS: Named = named(
    "store",
    "no_schedule_of_holds_confirms_cancels_and_lapses_oversells_or_passes_the_rules",
);
/// Plans beside their policy.
pub(crate) const POLICY: Named = named("matcher", "no_plan_takes_what_the_policy_forbids");
/// The table of failures in docs/verification-checks.md.
pub(crate) const VERIFICATION_TABLE: Named = named(
    "verifier",
    "the_table_in_the_documentation_is_what_the_rules_make_of_the_nodes",
);
/// What is generated from `market`.
pub(crate) const GRIDS: Named = named("market", "state_grids");
/// What is generated from `broker`.
pub(crate) const GENERATED: [Named; 6] = [
    named("broker", "openapi::"),
    named("broker", "demands::"),
    named("broker", "predictions::"),
    named("broker", "role_table::"),
    named("broker", "the_table_in_the_docs_is_the_one_in_the_code"),
    named(
        "broker",
        "the_page_of_settings_is_made_from_the_configuration",
    ),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths
            .flat_map(|path| match path.is_dir() {
                true => sources(&path),
                false => vec![path],
            })
            .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
            .collect()
    }

    /// Whether a test of this name, or a module of it with tests, is among the sources.
    fn is_there(sources: &[PathBuf], name: &str) -> bool {
        let function = format!("fn {name}(");
        let module = name.trim_end_matches("::").replace("::", "/");
        let [file, folder] = [".rs", "/mod.rs"].map(|end| format!("/{module}{end}"));
        sources.iter().any(|path| {
            let text = || fs::read_to_string(path).expect("a source");
            let shown = path.to_string_lossy();
            let is_module = shown.ends_with(&file) || shown.ends_with(&folder);
            if is_module {
                text().contains("#[test]") || text().contains("#[tokio::test")
            } else {
                text().contains(&function)
            }
        })
    }

    #[test]
    fn every_test_that_a_habit_names_is_there() {
        let one_each = [CROSS_TENANT, HOLDS, POLICY, VERIFICATION_TABLE, GRIDS];
        for Named { package, name } in one_each.into_iter().chain(CHAOS).chain(GENERATED) {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let folders = ["src", "tests"].map(|part| root.join(package).join(part));
            let folders = folders.iter().filter(|folder| folder.is_dir());
            let sources: Vec<_> = folders.flat_map(|folder| sources(folder)).collect();
            assert!(is_there(&sources, name), "no test of {package} is {name}");
        }
    }
}
