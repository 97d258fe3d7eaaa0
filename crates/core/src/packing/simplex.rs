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
    let width = variables + slacks + 1;
    let mut table: Vec<Vec<f64>> = rows
        .iter()
        .enumerate()
        .map(|(index, (row, limit))| {
            let mut line = vec![0.0; width];
            line[..variables].copy_from_slice(row);
            line[variables + index] = 1.0;
            line[width - 1] = *limit;
            line
        })
        .collect();
    let mut costs = vec![0.0; width];
    costs[..variables].copy_from_slice(goal);
    let mut basis: Vec<usize> = (variables..variables + slacks).collect();
    for step in 0..MOST_STEPS {
        // The steepest column first; after many steps the first one, which cannot go round in circles.
        let rising = (0..width - 1).filter(|column| costs[*column] > TINY);
        let entering = if step < MOST_STEPS / 2 {
            rising.max_by(|one, other| costs[*one].total_cmp(&costs[*other]).then(other.cmp(one)))
        } else {
            rising.min()
        };
        let Some(entering) = entering else { break };
        let leaving = (0..slacks).filter(|row| table[*row][entering] > TINY).min_by(|one, other| {
            let ratio = |row: usize| table[row][width - 1] / table[row][entering];
            ratio(*one).total_cmp(&ratio(*other)).then(basis[*one].cmp(&basis[*other]))
        });
        let Some(leaving) = leaving else { break };
        let pivot = table[leaving][entering];
        table[leaving].iter_mut().for_each(|cell| *cell /= pivot);
        let line = table[leaving].clone();
        for (row, cells) in table.iter_mut().enumerate() {
            let factor = cells[entering];
            if row != leaving && factor != 0.0 {
                cells.iter_mut().zip(&line).for_each(|(cell, pivot)| *cell -= factor * pivot);
            }
        }
        let factor = costs[entering];
        costs.iter_mut().zip(&line).for_each(|(cell, pivot)| *cell -= factor * pivot);
        basis[leaving] = entering;
    }
    let mut values = vec![0.0; variables];
    for (row, variable) in basis.iter().enumerate().filter(|(_, variable)| **variable < variables) {
        values[*variable] = table[row][width - 1].max(0.0);
    }
    let duals = costs[variables..width - 1].iter().map(|cost| (-cost).max(0.0)).collect();
    Answer { values, duals }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_goal_that_nothing_bounds_ends() {
        assert_eq!(maximise(&[1.0], &[]).values, [0.0]);
    }
}
