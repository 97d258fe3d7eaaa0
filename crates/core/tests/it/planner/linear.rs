//! Integer programs with integer data: what the second oracle writes its definition in.

use good_lp::{Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, microlp, variable};

/// A sum of variables with integer coefficients, and a constant.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    terms: Vec<(usize, i32)>,
    constant: i32,
}

impl Sum {
    pub(super) fn of(variable: usize) -> Self {
        Self::default().plus(variable, 1)
    }

    pub(super) fn constant(constant: i32) -> Self {
        Self { terms: Vec::new(), constant }
    }

    pub(super) fn plus(mut self, variable: usize, times: i32) -> Self {
        if times != 0 {
            match self.terms.iter_mut().find(|(other, _)| *other == variable) {
                Some((_, coefficient)) => *coefficient += times,
                None => self.terms.push((variable, times)),
            }
        }
        self
    }

    pub(super) fn add(mut self, other: &Self, times: i32) -> Self {
        self.constant += other.constant * times;
        for (variable, coefficient) in &other.terms {
            self = self.plus(*variable, coefficient * times);
        }
        self
    }

    fn value(&self, values: &[i32]) -> i32 {
        self.constant + self.terms.iter().map(|(variable, times)| values[*variable] * times).sum::<i32>()
    }

    fn expression(&self, variables: &[Variable]) -> Expression {
        let terms = self.terms.iter().map(|(variable, times)| f64::from(*times) * variables[*variable]);
        terms.fold(Expression::from(f64::from(self.constant)), |sum, term| sum + term)
    }
}

/// Integer variables between bounds, and sums of them that must not exceed 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    bounds: Vec<(i32, i32)>,
    rows: Vec<Sum>,
    /// Programs that were solved, relaxations included.
    pub(super) solved: u32,
}

impl Program {
    pub(super) fn variable(&mut self, least: i32, most: i32) -> usize {
        self.bounds.push((least, most));
        self.bounds.len() - 1
    }

    /// Leaves a variable one value.
    pub(super) fn fix(&mut self, variable: usize, value: i32) {
        let (least, most) = self.bounds[variable];
        self.bounds[variable] = (least.max(value), most.min(value));
    }

    /// `less` is at most `more`.
    pub(super) fn at_most(&mut self, less: &Sum, more: &Sum) {
        let row = less.clone().add(more, -1);
        if row.terms.is_empty() {
            // A row of constants: true, or nothing is feasible.
            if row.constant > 0 {
                let never = self.variable(1, 1);
                self.rows.push(Sum::of(never));
            }
            return;
        }
        self.rows.push(row);
    }

    pub(super) fn equal(&mut self, one: &Sum, other: &Sum) {
        self.at_most(one, other);
        self.at_most(other, one);
    }

    /// Whether values are a solution.
    pub(super) fn holds(&self, values: &[i32]) -> bool {
        self.rows.iter().all(|row| row.value(values) <= 0)
            && self.bounds.iter().zip(values).all(|((least, most), value)| least <= value && value <= most)
    }

    /// The least value of a sum, and values that reach it; `None` if nothing is feasible.
    ///
    /// Values are rounded to integers and put into every row again, exactly: what is called a solution is one.
    pub(super) fn least(&mut self, goal: &Sum) -> Option<(i32, Vec<i32>)> {
        let values = self.solve(goal, true)?;
        let values: Vec<i32> = values.into_iter().map(rounded).collect();
        assert!(self.holds(&values), "the solver's answer is a solution");
        Some((goal.value(&values), values))
    }

    /// A lower bound of a sum: its least value if fractions were allowed, rounded up.
    pub(super) fn bound(&mut self, goal: &Sum) -> Option<i32> {
        let values = self.solve(goal, false)?;
        let value = f64::from(goal.constant)
            + goal.terms.iter().map(|(variable, times)| values[*variable] * f64::from(*times)).sum::<f64>();
        Some(rounded((value - 1e-6).ceil()))
    }

    /// Minimises one sum after another, each fixed at its least before the next; `None` if nothing is feasible.
    pub(super) fn lexicographic(mut self, goals: &[Sum]) -> Option<(Vec<i32>, Self)> {
        let (_, mut values) = self.least(&Sum::default())?;
        let mut vector = Vec::new();
        for goal in goals {
            let mut best = goal.value(&values);
            // What was found for the fields before is often best in this one too: the relaxation proves it.
            if self.bound(goal).is_some_and(|bound| bound < best) {
                // Only what is better; often there is nothing, and that is proven sooner than found again.
                self.at_most(goal, &Sum::constant(best - 1));
                if let Some(better) = self.least(goal) {
                    (best, values) = better;
                }
                self.rows.pop();
            }
            vector.push(best);
            self.at_most(goal, &Sum::constant(best));
        }
        Some((vector, self))
    }

    fn solve(&mut self, goal: &Sum, integer: bool) -> Option<Vec<f64>> {
        self.solved += 1;
        if self.bounds.iter().any(|(least, most)| least > most) {
            return None;
        }
        let mut problem = ProblemVariables::new();
        let variables: Vec<Variable> = self
            .bounds
            .iter()
            .map(|(least, most)| {
                let definition = variable().min(*least).max(*most);
                problem.add(if integer { definition.integer() } else { definition })
            })
            .collect();
        let mut model = problem.minimise(goal.expression(&variables)).using(microlp);
        for row in &self.rows {
            model.add_constraint(row.expression(&variables).leq(0));
        }
        match model.solve() {
            Ok(solution) => Some(variables.iter().map(|variable| solution.value(*variable)).collect()),
            Err(ResolutionError::Infeasible) => None,
            Err(error) => panic!("the solver gives up: {error}"),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "every variable has bounds far inside i32")]
fn rounded(value: f64) -> i32 {
    value.round() as i32
}
