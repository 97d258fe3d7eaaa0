//! `muster iam`: the policy of Muster's AWS identity with its words filled in.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::Unusable;
use super::flags::say;

/// The shipped policy.
const SHIPPED: &str = include_str!("../../manifests/iam/policy.json");
/// What a managed policy may have at most, white space not counted. Source: quotas of IAM.
const LONGEST: usize = 6_144;

/// Arguments of `muster iam`.
#[derive(Debug, Args)]
pub struct IamArgs {
    /// Name of the EKS cluster, `cluster.name` of the configuration.
    #[arg(long)]
    cluster_name: String,
    /// UID of the namespace kube-system.
    #[arg(long)]
    cluster_uid: String,
    /// AWS account.
    #[arg(long)]
    account: String,
    /// Region.
    #[arg(long, env = "AWS_REGION")]
    region: String,
    /// Role of the nodes; the one of the shipped template is `CLUSTER-muster-node`.
    #[arg(long)]
    node_role: Option<String>,
    /// Queue of interruptions; the one of the shipped template is `CLUSTER-muster`.
    #[arg(long)]
    queue: Option<String>,
    /// Partition: aws, aws-us-gov or aws-cn.
    #[arg(long, default_value = "aws")]
    partition: String,
}

/// Prints the policy.
pub fn run(args: &IamArgs) -> anyhow::Result<ExitCode> {
    say(&render(args)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The policy as JSON, indented.
///
/// Errors: a value that cannot stand in an ARN, by name; a policy that IAM would refuse for its length.
fn render(args: &IamArgs) -> anyhow::Result<String> {
    let node_role = args.node_role.clone().unwrap_or_else(|| format!("{}-muster-node", args.cluster_name));
    let queue = args.queue.clone().unwrap_or_else(|| format!("{}-muster", args.cluster_name));
    let word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+=@,/".contains(c));
    for (name, value, fits) in [
        ("--cluster-name", &args.cluster_name, word(&args.cluster_name)),
        ("--cluster-uid", &args.cluster_uid, is_uid(&args.cluster_uid)),
        ("--account", &args.account, args.account.len() == 12 && args.account.chars().all(|c| c.is_ascii_digit())),
        ("--region", &args.region, word(&args.region) && args.region.contains('-')),
        ("--node-role", &node_role, word(&node_role)),
        ("--queue", &queue, word(&queue)),
        ("--partition", &args.partition, args.partition.starts_with("aws") && word(&args.partition)),
    ] {
        if !fits {
            return Err(Unusable(format!("{name}: \"{value}\" cannot stand in a policy")).into());
        }
    }
    let partition = format!("arn:{}:", args.partition);
    let words = [
        ("arn:aws:", partition.as_str()),
        ("NODE-ROLE", &node_role),
        ("ACCOUNT", &args.account),
        ("CLUSTER", &args.cluster_name),
        ("REGION", &args.region),
        ("QUEUE", &queue),
        ("UID", &args.cluster_uid),
    ];
    let mut policy: Value = serde_json::from_str(SHIPPED)?;
    fill(&mut policy, &words);
    let length = policy.to_string().len();
    if length > LONGEST {
        return Err(Unusable(format!(
            "the policy has {length} characters, and IAM takes {LONGEST}: use shorter names"
        ))
        .into());
    }
    Ok(serde_json::to_string_pretty(&policy)?)
}

pub(super) fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Fills words into every value. What was filled in is not looked at again, whatever it contains.
fn fill(value: &mut Value, words: &[(&str, &str)]) {
    match value {
        Value::String(text) => *text = filled(text, words),
        Value::Array(all) => all.iter_mut().for_each(|one| fill(one, words)),
        Value::Object(all) => all.values_mut().for_each(|one| fill(one, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn filled(text: &str, words: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match words.iter().find(|(word, _)| rest.starts_with(word)) {
            Some((word, value)) => {
                out.push_str(value);
                rest = &rest[word.len()..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> IamArgs {
        IamArgs {
            cluster_name: "QUEUE-training".to_owned(),
            cluster_uid: "01234567-89ab-cdef-0123-456789abcdef".to_owned(),
            account: "123456789012".to_owned(),
            region: "us-gov-west-1".to_owned(),
            node_role: None,
            queue: None,
            partition: "aws-us-gov".to_owned(),
        }
    }

    #[test]
    fn no_word_is_left_and_none_is_filled_into_what_was_filled_in() {
        let policy = render(&args()).unwrap();
        for word in ["ACCOUNT", "CLUSTER", "REGION", "NODE-ROLE", "\"UID\"", "arn:aws:"] {
            assert!(!policy.contains(word), "{word} in {policy}");
        }
        for part in [
            "arn:aws-us-gov:iam::123456789012:role/QUEUE-training-muster-node",
            "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:QUEUE-training-muster",
            "arn:aws-us-gov:ec2:us-gov-west-1:123456789012:placement-group/QUEUE-training-*",
            "\"aws:RequestTag/muster.dev/cluster-uid\": \"01234567-89ab-cdef-0123-456789abcdef\"",
        ] {
            assert!(policy.contains(part), "{part} in {policy}");
        }
    }

    #[test]
    fn every_arn_of_a_policy_is_of_its_partition() {
        let china = IamArgs { region: "cn-north-1".to_owned(), partition: "aws-cn".to_owned(), ..args() };
        let policy = render(&china).unwrap();
        let arns: Vec<&str> = policy.split('"').filter(|text| text.starts_with("arn:")).collect();
        assert!(arns.len() > 5, "{policy}");
        for arn in arns {
            assert!(arn.starts_with("arn:aws-cn:"), "{arn}");
            assert!(!arn.contains("us-"), "{arn}");
        }
        assert!(policy.contains("\"ec2.amazonaws.com.cn\""), "to whom the role may be passed: {policy}");
    }

    #[test]
    fn a_value_that_cannot_stand_in_a_policy_is_refused_by_name() {
        type Change = fn(&mut IamArgs);
        let wrong: [(&str, Change); 7] = [
            ("--cluster-name", |args| args.cluster_name = "a b".to_owned()),
            ("--cluster-uid", |args| args.cluster_uid = "kube-system".to_owned()),
            ("--account", |args| args.account = "12345".to_owned()),
            ("--region", |args| args.region = "*".to_owned()),
            ("--node-role", |args| args.node_role = Some("*".to_owned())),
            ("--queue", |args| args.queue = Some(String::new())),
            ("--partition", |args| args.partition = "gcp".to_owned()),
        ];
        for (name, change) in wrong {
            let mut args = args();
            change(&mut args);
            let message = render(&args).unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn a_policy_that_iam_would_refuse_for_its_length_is_refused_here() {
        let long = IamArgs { cluster_name: "c".repeat(1_000), ..args() };
        assert!(render(&long).unwrap_err().to_string().contains("6144"));
    }
}
