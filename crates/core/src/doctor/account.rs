//! The account: identity, permissions, and what an EC2NodeClass chooses there.

use super::facts::{Account, Class, Facts, Images, Queue, Ready, Trial};
use super::{Check, Finding, Outcome};
use crate::ec2::{CallError, ErrorClass, Without, denied_action, without};

/// What renders the policy that gives a missing permission.
const POLICY: &str = "deploy cloudformation/muster.yaml again, or attach the policy of `muster iam` to Muster's role \
     (manifests/iam/policy.json)";
/// Fewer free addresses than this in a subnet are worth a word: EKS itself asks for six.
const FEW_ADDRESSES: u32 = 16;

/// Who asks, what they may do, and the queue.
pub(super) fn identity(facts: &Facts, checks: &mut Vec<Finding>) {
    let Some(account) = &facts.account else {
        let why = if facts.configuration.disabled { "ec2.disabled is set" } else { "there is no Region" };
        checks.push(Finding::skipped(Check::Credentials, "", format!("AWS was not asked: {why}")));
        return;
    };
    checks.push(credentials(&account.first));
    permissions(account, checks);
    checks.extend(account.queue.as_ref().map_or_else(
        || {
            Some(Finding::skipped(
                Check::Queue,
                "",
                "ec2.interruptionQueue is not set: interruptions are noticed when a node fails",
            ))
        },
        |queue| (account.known() || queue.error.is_none()).then(|| of_queue(queue)),
    ));
}

impl Account {
    /// Whether AWS answered, and knows who asks: else nothing more need be asked.
    #[must_use]
    pub fn known(&self) -> bool {
        self.first.as_ref().err().is_none_or(|error| !nobody(error))
    }
}

/// The account or its keys are refused as a whole, or nobody was reached.
fn nobody(error: &CallError) -> bool {
    match error.kind.permitted() {
        None => true,
        Some(false) => error.code.as_deref() != Some("UnauthorizedOperation"),
        Some(true) => false,
    }
}

fn credentials(first: &Result<(), CallError>) -> Finding {
    const CHECK: Check = Check::Credentials;
    let Some(error) = first.as_ref().err().filter(|error| nobody(error)) else {
        return Finding::ok(CHECK, "", "AWS knows who asks");
    };
    let (message, mend) = if error.kind == ErrorClass::NotSent {
        (
            format!("no AWS credentials found: {}", error.message),
            "in the Pod: aws eks create-pod-identity-association --cluster-name CLUSTER --namespace muster-system \
             --service-account muster --role-arn ROLE; here: AWS_PROFILE, and for a profile with SSO or a process: \
             eval \"$(aws configure export-credentials --format env)\"",
        )
    } else if error.kind.permitted().is_none() {
        (
            format!("AWS does not answer: {error}"),
            "allow HTTPS to ec2.REGION.amazonaws.com (a VPC endpoint in a private cluster); check ec2.region and \
             ec2.endpointUrl",
        )
    } else if error.code.as_deref() == Some("RequestExpired") {
        (format!("AWS refuses the time of the request: {error}"), "set this machine's clock: systemctl restart chronyd")
    } else {
        (
            format!("AWS refuses who asks: {error}"),
            "renew the credentials: aws sts get-caller-identity shows whose they are",
        )
    };
    Finding::fail(CHECK, "", message, mend)
}

fn permissions(account: &Account, checks: &mut Vec<Finding>) {
    if !account.known() {
        checks.push(Finding::skipped(Check::Permissions, "", "nobody is known who could have any"));
        return;
    }
    let mut passed = 0_usize;
    for (action, trial) in &account.actions {
        match trial {
            Trial::Passed => passed += 1,
            Trial::NothingToTry(lacking) => {
                checks.push(Finding::skipped(Check::Permissions, action, format!("a dry run needs {lacking}")));
            }
            Trial::Refused(error) => match error.kind.permitted() {
                Some(true) => passed += 1,
                Some(false) => checks.push(denied(action, error)),
                None => checks.push(Finding::warn(
                    Check::Permissions,
                    action,
                    format!("not known: {error}"),
                    "run muster doctor again",
                )),
            },
        }
    }
    checks.push(Finding::ok(Check::Permissions, "", format!("{passed} actions are allowed")));
}

/// The action that is refused is the one that AWS names: a launch also tags, and passes a role.
fn denied(asked: &str, error: &CallError) -> Finding {
    let action = denied_action(&error.message).unwrap_or_else(|| asked.to_owned());
    let (result, follows) = match without(&action) {
        Without::NothingIsProvisioned => (Outcome::Fail, "nothing is provisioned without it"),
        Without::GoesOn => (Outcome::Warn, "provisioning goes on without it"),
    };
    let by = if action == asked { String::new() } else { format!(", which {asked} needs") };
    Finding {
        check: Check::Permissions,
        subject: action.clone(),
        result,
        message: format!("{action}{by} is denied: {follows}"),
        mend: Some(POLICY.to_owned()),
    }
}

fn of_queue(queue: &Queue) -> Finding {
    let Queue { name, error } = queue;
    match error {
        None => Finding::ok(Check::Queue, name, "it exists"),
        Some((Some(code), text)) if code.contains("AccessDenied") => {
            Finding::fail(Check::Queue, name, format!("sqs:GetQueueUrl is denied: {text}"), POLICY)
        }
        Some((_, text)) => Finding::fail(
            Check::Queue,
            name,
            format!("it is not there: {text}"),
            "deploy cloudformation/muster.yaml, which makes it, and set ec2.interruptionQueue to its name",
        ),
    }
}

/// What each EC2NodeClass chooses.
pub(super) fn classes(facts: &Facts, checks: &mut Vec<Finding>) {
    if facts.classes.is_empty() {
        checks.push(none(Check::NodeClass, "EC2NodeClass"));
    }
    let cluster = facts.account.as_ref().and_then(|account| account.cluster.as_ref()?.as_ref().ok());
    let vpc = cluster.and_then(|cluster| cluster.vpc.as_deref());
    let ipv6 = cluster.is_some_and(|cluster| cluster.access.is_ipv6());
    for class in &facts.classes {
        checks.push(ready(Check::NodeClass, "EC2NodeClass", &class.name, &class.ready));
        checks.extend(class.subnets.as_ref().map(|subnets| of_subnets(class, subnets.as_ref(), vpc, ipv6)));
        groups(class, checks);
        checks.extend(class.images.as_ref().map(|images| of_images(class, images)));
        checks.extend(class.launch.as_ref().map(|trial| launch(class, trial)));
    }
}

/// No object of a kind without which nothing is provisioned.
pub(super) fn none(check: Check, kind: &str) -> Finding {
    Finding::warn(
        check,
        "",
        format!("there is no {kind}: nothing can be provisioned"),
        "kubectl apply -f an EC2NodeClass and a NodePool, as in docs/getting-started-eks.md",
    )
}

/// An object's condition `Ready`.
pub(super) fn ready(check: Check, kind: &str, name: &str, ready: &Ready) -> Finding {
    let plural = kind.to_ascii_lowercase();
    match ready {
        Ready::Yes => Finding::ok(check, name, "is Ready"),
        Ready::No(reason, message) => Finding::fail(
            check,
            name,
            format!("is not Ready: {reason}: {message}"),
            format!("kubectl edit {plural} {name}: mend what the message names"),
        ),
        Ready::Unseen => Finding::warn(
            check,
            name,
            "muster serve has not looked at it",
            "kubectl -n muster-system get pods: muster serve must run, and hold the lease",
        ),
    }
}

fn edit(class: &Class, field: &str) -> String {
    format!("kubectl edit ec2nodeclass {}: {field}", class.name)
}

fn of_subnets(
    class: &Class,
    found: Result<&Vec<crate::ec2::Subnet>, &CallError>,
    vpc: Option<&str>,
    ipv6: bool,
) -> Finding {
    const CHECK: Check = Check::Subnets;
    let name = &class.name;
    let subnets = match found {
        Err(error) => return unanswered(CHECK, name, error),
        Ok(subnets) => subnets,
    };
    let field = || edit(class, "spec.subnetSelectorTerms; aws ec2 describe-subnets shows ids and tags");
    if subnets.is_empty() {
        return Finding::fail(CHECK, name, "no subnet matches spec.subnetSelectorTerms", field());
    }
    if subnets.iter().any(|subnet| subnet.vpc_id != subnets[0].vpc_id) {
        return Finding::fail(CHECK, name, "the chosen subnets lie in more than one VPC", field());
    }
    if let Some(vpc) = vpc.filter(|vpc| subnets[0].vpc_id != **vpc) {
        let (id, other) = (&subnets[0].id, &subnets[0].vpc_id);
        return Finding::fail(CHECK, name, format!("{id} is in {other}, and the cluster is in {vpc}"), field());
    }
    let shown = |subnet: &crate::ec2::Subnet| format!("{} in {}", subnet.id, subnet.zone);
    let list = |few: &[&crate::ec2::Subnet]| few.iter().map(|subnet| shown(subnet)).collect::<Vec<_>>().join(", ");
    let without: Vec<_> = subnets.iter().filter(|subnet| ipv6 && !subnet.ipv6).collect();
    let associate = |subnet: &crate::ec2::Subnet| {
        format!("aws ec2 associate-subnet-cidr-block --subnet-id {} --ipv6-cidr-block A_64_OF_THE_VPC", subnet.id)
    };
    if let Some(first) = without.first() {
        let message = format!("the cluster is IPv6, and there is no IPv6 CIDR in {}", list(&without));
        return if without.len() == subnets.len() {
            Finding::fail(CHECK, name, message, associate(first))
        } else {
            Finding::warn(CHECK, name, message, associate(first))
        };
    }
    let full: Vec<_> = subnets.iter().filter(|subnet| subnet.free_addresses == 0).collect();
    let few: Vec<_> = subnets.iter().filter(|subnet| subnet.free_addresses < FEW_ADDRESSES).collect();
    let larger = || edit(class, "choose a larger subnet in spec.subnetSelectorTerms, or free addresses there");
    if full.len() == subnets.len() {
        return Finding::fail(CHECK, name, format!("no free address in {}", list(&full)), larger());
    }
    if !few.is_empty() {
        return Finding::warn(
            CHECK,
            name,
            format!("fewer than {FEW_ADDRESSES} free addresses in {}", list(&few)),
            larger(),
        );
    }
    let all: Vec<_> = subnets.iter().collect();
    Finding::ok(CHECK, name, list(&all))
}

fn groups(class: &Class, checks: &mut Vec<Finding>) {
    const CHECK: Check = Check::SecurityGroups;
    let name = &class.name;
    let groups = match &class.groups {
        None => return,
        Some(Err(error)) => return checks.push(unanswered(CHECK, name, error)),
        Some(Ok(groups)) => groups,
    };
    let Some(first) = groups.first() else {
        return checks.push(Finding::fail(
            CHECK,
            name,
            "no security group matches spec.securityGroupSelectorTerms",
            edit(class, "spec.securityGroupSelectorTerms; aws ec2 describe-security-groups shows ids, names and tags"),
        ));
    };
    if let Some(Ok(subnets)) = &class.subnets
        && let Some(subnet) = subnets.first()
        && let Some(other) = groups.iter().find(|group| group.vpc_id != subnet.vpc_id)
    {
        return checks.push(Finding::fail(
            CHECK,
            name,
            format!("{} is in {}, and the subnets are in {}", other.id, other.vpc_id, subnet.vpc_id),
            edit(class, "spec.securityGroupSelectorTerms: choose groups of the subnets' VPC"),
        ));
    }
    if class.efa && !groups.iter().any(|group| group.allows_itself) {
        let id = &first.id;
        let all = format!("--group-id {id} --protocol -1 --source-group {id}");
        let out = format!("--group-id {id} --ip-permissions 'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={id}}}]'");
        return checks.push(Finding::fail(
            CHECK,
            name,
            "no chosen group allows all traffic from and to itself, which EFA needs",
            format!("aws ec2 authorize-security-group-ingress {all} && aws ec2 authorize-security-group-egress {out}"),
        ));
    }
    let ids: Vec<&str> = groups.iter().map(|group| group.id.as_str()).collect();
    checks.push(Finding::ok(CHECK, name, ids.join(", ")));
}

fn of_images(class: &Class, images: &Images) -> Finding {
    const CHECK: Check = Check::Images;
    match images {
        Images::Found(ids) => Finding::ok(CHECK, &class.name, ids.join(", ")),
        Images::None(why) => Finding::fail(CHECK, &class.name, why.clone(), edit(class, "spec.amiSelectorTerms")),
    }
}

/// A launch names what no single permission does: profile, image and groups together.
fn launch(class: &Class, trial: &Trial) -> Finding {
    const CHECK: Check = Check::Launch;
    let name = &class.name;
    match trial {
        Trial::Passed => Finding::ok(CHECK, name, "one instance would be launched"),
        Trial::NothingToTry(lacking) => Finding::skipped(CHECK, name, format!("a dry run needs {lacking}")),
        Trial::Refused(error) => match (error.kind.permitted(), class_field(error)) {
            (Some(false), _) => {
                let Finding { message, mend, result, .. } = denied("ec2:RunInstances", error);
                Finding { check: CHECK, subject: name.clone(), result, message, mend }
            }
            (_, Some(field)) => Finding::fail(CHECK, name, format!("{field}: {error}"), edit(class, field)),
            (Some(true), None) => Finding::warn(CHECK, name, error.to_string(), "docs/operations.md names the code"),
            (None, None) => Finding::warn(CHECK, name, format!("not known: {error}"), "run muster doctor again"),
        },
    }
}

fn class_field(error: &CallError) -> Option<&'static str> {
    use crate::ec2::Blame;
    let blame = Blame::of(error.kind, error.code.as_deref(), &error.message)?;
    Some(match blame {
        Blame::InstanceProfile => "spec.instanceProfile",
        Blame::Image | Blame::Subnets | Blame::SecurityGroups | Blame::Reservations | Blame::Parameters => {
            blame.field()
        }
    })
}

fn unanswered(check: Check, name: &str, error: &CallError) -> Finding {
    match error.kind.permitted() {
        Some(false) => Finding::skipped(check, name, format!("not allowed to look: {error}")),
        Some(true) => Finding::fail(check, name, error.to_string(), format!("kubectl edit ec2nodeclass {name}")),
        None => Finding::warn(check, name, format!("not known: {error}"), "run muster doctor again"),
    }
}
