//! A small linear programme in floats. Nothing that is proven rests on it: its answer is rounded and verified in integers.

/// Most steps: an answer that is not optimal is still an answer.
const MOST_STEPS: usize = 2_000;
const TINY: f64 = 1e-9;

/// What a programme comes to.
#[derive(Debug)]
pub(super) struct Answer {
    /// `[variable]`.
    pub(super) values: Vec<f64>,
    /// `[row]`: by how much the goal rises with the limit of the row.
    pub(super) duals: Vec<f64>,
}

/// Maximises `goal · x` for `x ≥ 0` and `row · x ≤ limit` of each row; limits are not negative. The origin is feasible, so
/// there is always an answer.
pub(super) fn maximise(goal: &[f64], rows: &[(Vec<f64>, f64)]) -> Answer {
    let (variables, slacks) = (goal.len(), rows.len());
    let and = |cells: &[f64], last: f64| cells.iter().copied().chain([last]).collect::<Vec<f64>>();
    // Columns of what is outside the basis; those inside are those of the identity, and there are far more of them.
    let mut table: Vec<Vec<f64>> = rows.iter().map(|(row, limit)| and(row, *limit)).collect();
    let mut costs = and(goal, 0.0);
    let mut outside: Vec<usize> = (0..variables).collect();
    let mut basis: Vec<usize> = (variables..variables + slacks).collect();
    for step in 0..MOST_STEPS {
        // The steepest column first; after many steps the first one, which cannot go round in circles.
        let rising = (0..variables).filter(|column| costs[*column] > TINY);
        let entering = if step < MOST_STEPS / 2 {
            rising.max_by(|one, other| costs[*one].total_cmp(&costs[*other]).then(outside[*other].cmp(&outside[*one])))
        } else {
            rising.min_by_key(|column| outside[*column])
        };
        let Some(entering) = entering else { break };
        let leaving = (0..slacks).filter(|row| table[*row][entering] > TINY).min_by(|one, other| {
            let ratio = |row: usize| table[row][variables] / table[row][entering];
            ratio(*one).total_cmp(&ratio(*other)).then(basis[*one].cmp(&basis[*other]))
        });
        let Some(leaving) = leaving else { break };
        let mut line = std::mem::take(&mut table[leaving]);
        let pivot = line[entering];
        line.iter_mut().for_each(|cell| *cell /= pivot);
        line[entering] = 1.0 / pivot;
        for cells in table.iter_mut().chain([&mut costs]).filter(|cells| !cells.is_empty()) {
            // What leaves has the column from now on, and had none in this row.
            let factor = std::mem::take(&mut cells[entering]);
            if factor != 0.0 {
                cells.iter_mut().zip(&line).for_each(|(cell, pivot)| *cell -= factor * pivot);
            }
        }
        table[leaving] = line;
        std::mem::swap(&mut basis[leaving], &mut outside[entering]);
    }
    let (mut values, mut duals) = (vec![0.0; variables], vec![0.0; slacks]);
    for (row, variable) in basis.iter().enumerate().filter(|(_, variable)| **variable < variables) {
        values[*variable] = table[row][variables].max(0.0);
    }
    for (column, slack) in outside.iter().enumerate().filter(|(_, slack)| **slack >= variables) {
        duals[slack - variables] = (-costs[column]).max(0.0);
    }
    Answer { values, duals }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_programme_of_two_variables_is_solved() {
        // Maximise 3x + 2y under x + y ≤ 4, x + 3y ≤ 6, x ≤ 3: x = 3, y = 1.
        let rows = [(vec![1.0, 1.0], 4.0), (vec![1.0, 3.0], 6.0), (vec![1.0, 0.0], 3.0)];
        let answer = maximise(&[3.0, 2.0], &rows);
        let near = |found: &[f64], expected: &[f64]| {
            found.len() == expected.len() && found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-6)
        };
        assert!(near(&answer.values, &[3.0, 1.0]), "{answer:?}");
        // 4 · 2 + 3 · 1 = 11, and more of the second limit is worth nothing.
        assert!(near(&answer.duals, &[2.0, 0.0, 1.0]), "{answer:?}");
    }

    fn dot(one: &[f64], other: &[f64]) -> f64 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    }

    proptest! {
        #[test]
        fn an_answer_keeps_all_limits_and_what_they_are_worth_proves_that_none_is_better(
            goal in vec(0_u8..20, 1..8),
            rows in vec((vec(0_u8..9, 8), 0_u8..50), 0..12),
        ) {
            let floats = |numbers: &[u8]| numbers.iter().map(|number| f64::from(*number)).collect::<Vec<f64>>();
            let goal = floats(&goal);
            let mut rows: Vec<(Vec<f64>, f64)> =
                rows.iter().map(|(row, limit)| (floats(&row[..goal.len()]), f64::from(*limit))).collect();
            // Bounded, whatever else there is.
            rows.push((vec![1.0; goal.len()], 60.0));
            let answer = maximise(&goal, &rows);
            prop_assert!(answer.values.iter().chain(&answer.duals).all(|value| *value >= 0.0));
            for (row, limit) in &rows {
                prop_assert!(dot(row, &answer.values) <= limit + 1e-6);
            }
            for (index, worth) in goal.iter().enumerate() {
                let column: Vec<f64> = rows.iter().map(|(row, _)| row[index]).collect();
                prop_assert!(dot(&column, &answer.duals) >= worth - 1e-6);
            }
            let limits: Vec<f64> = rows.iter().map(|(_, limit)| *limit).collect();
            let (found, proven) = (dot(&goal, &answer.values), dot(&limits, &answer.duals));
            prop_assert!((found - proven).abs() < 1e-4, "{found} of {proven}");
        }
    }

    #[test]
    fn a_goal_that_nothing_bounds_ends() {
        assert_eq!(maximise(&[1.0], &[]).values, [0.0]);
    }
}
