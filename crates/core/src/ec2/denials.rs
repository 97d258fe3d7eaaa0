//! What Muster's AWS identity may not do: the actions that were denied lately, and what follows from each.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// A denial is trusted for this long unless the same call is seen to succeed: nothing that hinges on it is provisioned
/// meanwhile, and afterwards it is tried once.
const TRUSTED: SignedDuration = SignedDuration::from_mins(15);

/// What goes on without an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Without {
    /// Nothing is provisioned: it could not be launched, be found again, or be terminated.
    NothingIsProvisioned,
    /// Everything goes on; something else tells the same later, or a capacity type is excluded.
    GoesOn,
}

/// What goes on without an action such as `ec2:RunInstances`. Of an action that nobody knows the worst is assumed.
#[must_use]
pub fn without(action: &str) -> Without {
    match action {
        // The nodes' labels tell the topology; events and conditions of nodes tell losses; without prices there is no
        // spot; where the Region has too many fleets there is another call.
        "ec2:DescribeInstanceTopology"
        | "ec2:DescribeInstanceStatus"
        | "ec2:DescribeSpotPriceHistory"
        | "ec2:DeleteFleets" => Without::GoesOn,
        // What a machine that never joined wrote last is a help to people alone.
        "ec2:GetConsoleOutput" => Without::GoesOn,
        // An image that is known goes on; a class without one says so itself.
        "ssm:GetParameter" => Without::GoesOn,
        // The list that Muster brings stands in.
        "pricing:GetProducts" => Without::GoesOn,
        // Only the doctor looks at quotas: a launch beyond one is refused by name.
        "servicequotas:GetServiceQuota" | "servicequotas:GetAWSDefaultServiceQuota" => Without::GoesOn,
        // The configuration may say all that EKS would; access entries are only looked at by the doctor.
        "eks:DescribeCluster" | "eks:DescribeAccessEntry" => Without::GoesOn,
        _ if action.starts_with("sqs:") => Without::GoesOn,
        _ => Without::NothingIsProvisioned,
    }
}

/// Whether a denial of the action says something of one class alone: it names the role that the class passes, or what an
/// identity may launch by its conditions on types, subnets and tags.
fn of_its_class(action: &str) -> bool {
    matches!(action, "iam:PassRole" | "ec2:RunInstances" | "ec2:CreateFleet")
}

/// What was denied: the action, and the class it was denied for where it says nothing of others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Denied {
    action: String,
    class: Option<String>,
}

/// One denied action.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Denial {
    /// The call that was refused, `CreateFleet`.
    operation: String,
    /// EC2's code and text.
    stated: String,
    /// It is about the identity or the account as a whole: whatever succeeds shows that it is over.
    whole: bool,
    /// A dry run found it too, so a dry run can say when it is over.
    dry: bool,
    at: Timestamp,
}

impl Denial {
    fn trusted(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) < TRUSTED
    }
}

/// A call that was refused for want of a right.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// `ec2`, `sqs`.
    pub service: &'a str,
    /// `CreateFleet`.
    pub operation: &'a str,
    /// EC2's code.
    pub code: Option<&'a str>,
    /// EC2's text.
    pub message: &'a str,
}

/// Actions denied lately. Time is an argument of every method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    actions: BTreeMap<Denied, Denial>,
}

impl Denials {
    /// Remembers that a call was refused for want of a right. `dry`: by a dry run. `class`: the class the call was made for,
    /// if it was made for one.
    pub fn record(&mut self, call: &Refused<'_>, class: Option<&str>, dry: bool, at: Timestamp) {
        let Refused { service, operation, code, message } = *call;
        let named = denied_action(message);
        let of_action = matches!(code, None | Some("UnauthorizedOperation"));
        let whole = named.is_none() && !of_action && code.is_some_and(|code| !code.starts_with("AccessDenied"));
        let action = named.unwrap_or_else(|| format!("{service}:{operation}"));
        let class = class.filter(|_| of_its_class(&action) && !whole).map(str::to_owned);
        let denied = Denied { action, class };
        let message = short(message);
        let stated = code.map_or_else(|| message.clone(), |code| format!("{code}: {message}"));
        let dry = dry || self.actions.get(&denied).is_some_and(|known| known.dry && known.operation == operation);
        self.actions.insert(denied, Denial { operation: operation.to_owned(), stated, whole, dry, at });
    }

    /// The call was carried out, or would have been: what it was refused for is allowed by now. Whether that is news. A
    /// denial for one class ends only by a call for that class.
    pub fn succeeded(&mut self, operation: &str, class: Option<&str>, dry: bool) -> bool {
        let before = self.actions.len();
        let over = |denied: &Denied, known: &Denial| {
            let same = denied.class.is_none() || denied.class.as_deref() == class;
            known.whole || (same && known.operation == operation && (known.dry || !dry))
        };
        self.actions.retain(|denied, known| !over(denied, known));
        self.actions.len() < before
    }

    /// How many denials are trusted, of whatever class.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        self.actions.values().filter(|denial| denial.trusted(now)).count()
    }

    /// Actions that are denied to everybody or for this class, with EC2's words, in order of name.
    pub fn live<'a>(&'a self, class: Option<&'a str>, now: Timestamp) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.actions
            .iter()
            .filter(move |(denied, denial)| {
                denial.trusted(now) && (denied.class.is_none() || denied.class.as_deref() == class)
            })
            .map(|(denied, denial)| (denied.action.as_str(), denial.stated.as_str()))
    }

    /// One sentence about everything that is denied to everybody or for this class; `None` if nothing is.
    #[must_use]
    pub fn sentence(&self, class: Option<&str>, now: Timestamp) -> Option<String> {
        self.tell(class, now, |_| true)
    }

    /// One sentence about what must be allowed before anything is provisioned with this class; `None` if nothing stands in the
    /// way.
    #[must_use]
    pub fn blocks(&self, class: Option<&str>, now: Timestamp) -> Option<String> {
        self.tell(class, now, |action| without(action) == Without::NothingIsProvisioned)
    }

    fn tell(&self, class: Option<&str>, now: Timestamp, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let found: Vec<(&str, &str)> = self.live(class, now).filter(|(action, _)| wanted(action)).collect();
        let (_, first) = found.first()?;
        let names: Vec<&str> = found.iter().map(|(action, _)| *action).collect();
        Some(format!(
            "Muster's AWS identity may not {}; allow it as in manifests/iam/policy.json ({first})",
            names.join(", ")
        ))
    }
}

/// The action that AWS names in the text of a denial; a launch also tags, and passes a role.
#[must_use]
pub fn denied_action(message: &str) -> Option<String> {
    let rest = message.split_once("not authorized to perform: ")?.1;
    let action = rest.split([' ', '\n', ',']).next()?;
    action.contains(':').then(|| action.to_owned())
}

/// The text without the encoded details that nobody can read.
fn short(message: &str) -> String {
    let message = message.split("Encoded authorization failure message").next().unwrap_or(message);
    message.trim().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "You are not authorized to perform this operation. User: arn:aws:iam::1:user/m is not authorized \
         to perform: ec2:CreateTags on resource: arn:aws:ec2:us-east-1:1:instance/* because no identity-based policy \
         allows the ec2:CreateTags action. Encoded authorization failure message: AbCdEf";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn refused<'a>(service: &'a str, operation: &'a str, code: Option<&'a str>, message: &'a str) -> Refused<'a> {
        Refused { service, operation, code, message }
    }

    const PASS_ROLE: &str = "User: arn:aws:iam::1:user/m is not authorized to perform: iam:PassRole on resource: \
         arn:aws:iam::1:role/gpu because no identity-based policy allows the iam:PassRole action";

    #[test]
    fn a_denied_role_or_launch_blocks_the_class_it_was_denied_for_and_no_other() {
        for (code, text, action) in [
            (Some("UnauthorizedOperation"), PASS_ROLE, "iam:PassRole"),
            (Some("UnauthorizedOperation"), "You are not authorized to perform this operation.", "ec2:RunInstances"),
        ] {
            let mut denials = Denials::default();
            denials.record(&refused("ec2", "RunInstances", code, text), Some("gpu"), false, at(0));
            let stated = denials.blocks(Some("gpu"), at(1)).unwrap();
            assert!(stated.contains(action), "{stated}");
            assert_eq!(denials.blocks(Some("cpu"), at(1)), None, "{action}");
            assert_eq!(denials.blocks(None, at(1)), None, "{action}");
            assert!(!denials.succeeded("RunInstances", Some("cpu"), false), "a launch of another class says nothing");
            assert!(denials.succeeded("RunInstances", Some("gpu"), false));
        }
    }

    #[test]
    fn what_every_launch_needs_and_a_refused_identity_block_every_class() {
        let mut denials = Denials::default();
        denials.record(&refused("ec2", "CreateFleet", None, TEXT), Some("gpu"), false, at(0));
        assert!(denials.blocks(Some("cpu"), at(1)).unwrap().contains("ec2:CreateTags"));
        let mut denials = Denials::default();
        denials.record(&refused("ec2", "RunInstances", Some("ExpiredToken"), "expired"), Some("gpu"), false, at(0));
        assert!(denials.blocks(Some("cpu"), at(1)).is_some());
    }

    fn names(denials: &Denials, now: i64) -> Vec<&str> {
        denials.live(None, at(now)).map(|(action, _)| action).collect()
    }

    #[test]
    fn the_action_is_the_one_ec2_names_and_else_that_of_the_call() {
        let mut denials = Denials::default();
        denials.record(&refused("ec2", "CreateFleet", Some("UnauthorizedOperation"), TEXT), None, false, at(0));
        denials.record(&refused("ec2", "DescribeFleets", Some("AuthFailure"), "no"), None, false, at(0));
        denials.record(&refused("sqs", "ReceiveMessage", Some("AccessDenied"), "no"), None, false, at(0));
        assert_eq!(names(&denials, 1), ["ec2:CreateTags", "ec2:DescribeFleets", "sqs:ReceiveMessage"]);
        let stated = denials.blocks(None, at(1)).unwrap();
        assert!(
            stated.starts_with("Muster's AWS identity may not ec2:CreateTags, ec2:DescribeFleets; allow it"),
            "{stated}"
        );
        assert!(!stated.contains("AbCdEf") && !stated.contains("sqs:"), "{stated}");
        assert!(denials.sentence(None, at(1)).unwrap().contains("sqs:ReceiveMessage"));
    }

    #[test]
    fn a_denial_ends_when_its_own_call_succeeds_or_after_a_quarter_of_an_hour() {
        let mut denials = Denials::default();
        denials.record(&refused("ec2", "CreateFleet", None, TEXT), None, false, at(0));
        assert!(!denials.succeeded("RunInstances", None, false), "another call says nothing about it");
        assert_eq!(names(&denials, 899), ["ec2:CreateTags"]);
        assert_eq!(names(&denials, 900), [""; 0]);
        assert!(denials.succeeded("CreateFleet", None, false));
        assert_eq!(denials, Denials::default());
    }

    #[test]
    fn an_identity_that_was_refused_as_a_whole_is_trusted_until_any_call_succeeds() {
        let mut denials = Denials::default();
        denials.record(
            &refused("ec2", "TerminateInstances", Some("ExpiredToken"), "the token has expired"),
            None,
            false,
            at(0),
        );
        denials.record(&refused("ec2", "CreateFleet", Some("UnauthorizedOperation"), TEXT), None, false, at(0));
        assert!(denials.blocks(None, at(1)).unwrap().contains("ec2:TerminateInstances"));
        assert!(denials.succeeded("DescribeInstances", None, false));
        assert_eq!(names(&denials, 1), ["ec2:CreateTags"], "a right that is missing is missing still");
    }

    #[test]
    fn a_dry_run_that_passes_ends_only_what_a_dry_run_has_found() {
        let mut denials = Denials::default();
        denials.record(&refused("ec2", "CreateFleet", None, TEXT), None, false, at(0));
        assert!(!denials.succeeded("CreateFleet", None, true), "the dry run does not see what the call runs into");
        denials.record(&refused("ec2", "CreateFleet", None, TEXT), None, true, at(1));
        denials.record(&refused("ec2", "CreateFleet", None, TEXT), None, false, at(2));
        assert!(denials.succeeded("CreateFleet", None, true));
    }

    #[test]
    fn what_only_tells_earlier_what_is_learned_anyway_blocks_nothing() {
        for action in ["ec2:DescribeInstanceTopology", "sqs:DeleteMessage", "ec2:DescribeSpotPriceHistory"] {
            assert_eq!(without(action), Without::GoesOn, "{action}");
        }
        for action in ["ec2:TerminateInstances", "ec2:DescribeInstances", "iam:PassRole", "ec2:Novelty"] {
            assert_eq!(without(action), Without::NothingIsProvisioned, "{action}");
        }
    }
}
