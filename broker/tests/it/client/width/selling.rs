//! Listings of offers: what changes the price is shown at every width, and a price that may be taken
//! back is marked.

/// What changes a price, and the price, in their order. The SKU may be left out.
const ORDER: [&str; 5] = ["terms", "fabric", "place", "SKU", "USD/GPU-h"];

/// Terms, fabric and place stand before SKU and price, and are never left out.
#[track_caller]
pub(super) fn what_changes_the_price_stands_before_it(command: &str, shown: &str) {
    let sold: Vec<_> = sold(shown).collect();
    assert!(!sold.is_empty(), "{command} sells nothing: {shown}");
    for headings in sold {
        let named = headings.iter().filter(|heading| ORDER.contains(heading));
        let named: Vec<&str> = named.copied().collect();
        let expected = ORDER.iter().filter(|name| {
            let may_be_left_out = **name == "SKU";
            !may_be_left_out || named.contains(name)
        });
        let expected: Vec<&str> = expected.copied().collect();
        assert_eq!(named, expected, "{command}: {shown}");
    }
}

/// Every price of so many offers is marked as spot.
#[track_caller]
pub(super) fn every_price_is_marked(shown: &str, offers: usize) {
    let headings = sold(shown).next().expect("what is sold");
    let is_price = |heading: &&&str| heading.starts_with("USD/");
    let prices = headings.iter().filter(is_price).count();
    let after = shown.split("spot ").skip(1);
    let marked = after.filter(|after| after.starts_with(|c: char| c.is_ascii_digit()));
    assert!(offers > 0 && prices > 0, "{shown}");
    assert_eq!(marked.count(), offers * prices, "{shown}");
}

/// The headings from the terms on, of each table and of each row of labelled lines that has a provider and
/// terms.
fn sold(shown: &str) -> impl Iterator<Item = Vec<&str>> {
    let all = drawn(shown).into_iter().chain(labels(shown));
    all.filter_map(|headings| {
        let terms = headings.iter().rposition(|heading| *heading == "terms")?;
        let is_row = headings[..terms].contains(&"provider");
        is_row.then(|| headings[terms..].to_vec())
    })
}

/// The words of the headings of each table, from left to right.
fn drawn(shown: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = shown.lines().collect();
    let mut all = Vec::new();
    for (end, _) in (lines.iter().enumerate()).filter(|(_, line)| line.starts_with('═')) {
        let top = lines[..end].iter().rposition(|line| line.starts_with('─'));
        let top = top.expect("the top of a table");
        let mut words: Vec<_> = lines[top + 1..end]
            .iter()
            .copied()
            .flat_map(words)
            .collect();
        words.sort_by_key(|(column, _)| *column);
        all.push(words.into_iter().map(|(_, word)| word).collect());
    }
    all
}

/// The words of a line, each with where it begins.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    line.split(' ').filter_map(move |word| {
        let start = end;
        end += word.len() + 1;
        (!word.is_empty()).then_some((start, word))
    })
}

/// The labels of each group of lines that no empty line divides.
fn labels(shown: &str) -> impl Iterator<Item = Vec<&str>> {
    shown.split("\n\n").map(|group| {
        let labelled = group.lines().filter(|line| !line.starts_with(' '));
        let labels = labelled.filter_map(|line| line.split_once("  "));
        labels.map(|(label, _)| label).collect()
    })
}

#[test]
fn headings_are_found_in_tables_and_labels_and_nowhere_else() {
    let table = "text of terms\n───\n provider   terms   USD/\n                    GPU-h\n═══\n lambda   \
        fabric   1\n───\n";
    assert_eq!(drawn(table), [["provider", "terms", "USD/", "GPU-h"]]);
    let rows =
        "terms  of a sheet\nprovider  lambda\n          place\nterms     spot\n\nprovider  x\n";
    let labels: Vec<_> = labels(rows).collect();
    assert_eq!(
        labels,
        [vec!["terms", "provider", "terms"], vec!["provider"]]
    );
    assert_eq!(sold(rows).collect::<Vec<_>>(), [["terms"]]);
}
