//! The minimum of a convex function of whole numbers.
//!
//! The search evaluates a number and the next one, which shows on which side the minimum lies. It guesses the
//! next number from the lines on both sides: for a function of few straight pieces a few guesses suffice.
//! Every third time it takes the middle, so that no function takes much longer than bisection.

/// The function from one number to the next.
#[derive(Clone, Copy)]
struct Line {
    at: u128,
    cost: i128,
    slope: i128,
}

impl Line {
    /// Where two lines meet, less than the number of the second one; rounded, so a guess.
    fn meets(self, right: Self) -> Option<u128> {
        let apart = (right.at - self.at) as f64;
        let (falls, rises) = (-self.slope as f64, right.slope as f64);
        let higher = (right.cost - self.cost) as f64;
        let beyond = (rises * apart - higher) / (falls + rises);
        (beyond.is_finite() && beyond > 0.0).then(|| self.at.saturating_add(beyond as u128))
    }
}

/// The first number from `low` to `high` after which the function does not decrease, with its cost; `None`
/// where `cost` returned `None`.
pub(super) fn least(
    low: u128,
    high: u128,
    mut cost: impl FnMut(u128) -> Option<i128>,
) -> Option<(u128, i128)> {
    let (mut low, mut above) = (low, high);
    let (mut left, mut right): (Option<Line>, Option<Line>) = (None, None);
    for turn in 1_u32.. {
        if low >= above {
            break;
        }
        let guess = match (left, right) {
            _ if turn % 3 == 0 => None,
            (None, _) => Some(low),
            (Some(_), None) => Some(above - 1),
            (Some(left), Some(right)) => left.meets(right),
        };
        let middle = guess.unwrap_or(low + (above - low) / 2);
        let at = middle.clamp(low, above - 1);
        let here = cost(at)?;
        let slope = cost(at + 1)? - here;
        let line = Line {
            at,
            cost: here,
            slope,
        };
        if slope < 0 {
            (low, left) = (at + 1, Some(line));
        } else {
            (above, right) = (at, Some(line));
        }
    }
    Some((low, cost(low)?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Draw;
    use super::*;

    /// The maximum of some lines: every convex function of straight pieces has this form.
    fn pieces(draw: &mut Draw) -> Vec<(i128, i128)> {
        let lines = 0..draw.within(1, 8);
        // Every other one has level pieces.
        let steep = [2, 1_000][draw.within(0, 1) as usize];
        lines
            .map(|_| {
                let slope = draw.within(0, 2 * steep) as i128 - steep as i128;
                (slope, draw.within(0, 100_000) as i128)
            })
            .collect()
    }

    fn at(lines: &[(i128, i128)], number: u128) -> i128 {
        let each = lines
            .iter()
            .map(|(slope, from)| slope * number as i128 + from);
        each.max().expect("a line")
    }

    #[test]
    fn it_is_that_of_looking_at_every_number() {
        let mut draw = Draw(21);
        for _ in 0..1_000 {
            let lines = pieces(&mut draw);
            let low = u128::from(draw.within(0, 50));
            let high = low + u128::from(draw.within(0, 300));
            let every = (low..=high).map(|number| (at(&lines, number), number));
            let (cost, number) = every.min().expect("a number");
            let found = least(low, high, |number| Some(at(&lines, number)));
            assert_eq!(found, Some((number, cost)), "{lines:?} {low} {high}");
        }
    }

    #[test]
    fn few_numbers_are_asked_for_where_there_are_many() {
        let mut draw = Draw(22);
        let (mut asked, mut most) = (0_u32, 0);
        for _ in 0..1_000 {
            let lines = pieces(&mut draw);
            let mut here = 0;
            let found = least(0, 1 << 40, |number| {
                here += 1;
                Some(at(&lines, number))
            });
            assert!(found.is_some());
            (asked, most) = (asked + here, most.max(here));
        }
        // Bisection asks for 81 each time.
        assert!(asked < 20_000 && most <= 81, "{asked} {most}");
    }

    #[test]
    fn a_cost_that_is_none_is_an_answer() {
        assert_eq!(least(3, 9, |_| None), None);
        assert_eq!(least(5, 5, |number| Some(number as i128)), Some((5, 5)));
    }
}
