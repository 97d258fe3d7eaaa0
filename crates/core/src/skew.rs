//! Which kube-scheduler may run beside which API server.
//!
//! Kubernetes' version skew policy: kube-scheduler must not be newer than the API server, and may be one minor version older.
//! A newer one asks for kinds and fields that the API server does not serve, and then waits for ever without an error.

use std::fmt;

/// A minor version of Kubernetes, such as 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor {
    major: u16,
    minor: u16,
}

impl Minor {
    /// Reads `v1.37.2`, `1.37`, or what a distribution makes of it: `v1.37.2-eks-3025e55`, `v1.37.0+k3s1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (major, rest) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
        let digits = rest.len() - rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
        let (minor, behind) = rest.split_at(digits);
        // `1.37rc` is no release, and nothing is known of it.
        if !behind.is_empty() && !behind.starts_with(['.', '-', '+']) {
            return None;
        }
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The version that an image's tag names; none for an image that is named by its digest alone, or by `latest`.
    #[must_use]
    pub fn of_image(image: &str) -> Option<Self> {
        let named = image.split_once('@').map_or(image, |(named, _)| named);
        // A colon before the last slash belongs to the registry's port.
        let last = named.rsplit_once('/').map_or(named, |(_, last)| last);
        Self::parse(last.split_once(':')?.1)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// How a kube-scheduler stands to its API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// The same minor version, or one below.
    Supported,
    /// Newer than the API server: refused.
    Newer,
    /// More than one minor version below: Kubernetes does not support the pair, and most of it works.
    TooOld,
}

/// Judges a pair.
#[must_use]
pub fn skew(scheduler: Minor, api_server: Minor) -> Skew {
    if scheduler > api_server {
        Skew::Newer
    } else if scheduler.major == api_server.major && api_server.minor - scheduler.minor <= 1 {
        Skew::Supported
    } else {
        Skew::TooOld
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minor(text: &str) -> Minor {
        Minor::parse(text).unwrap()
    }

    #[test]
    fn versions_of_releases_and_distributions_are_read() {
        for text in ["v1.37.2", "1.37", "v1.37.2-eks-3025e55", "v1.37.0+k3s1", "1.37+"] {
            assert_eq!(Minor::parse(text).map(|minor| minor.to_string()).as_deref(), Some("1.37"), "{text}");
        }
        for text in ["", "latest", "v1", "1.", "1.x", "v1.37rc", "one.37"] {
            assert_eq!(Minor::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_tag_of_an_image_names_its_version_and_a_digest_alone_names_none() {
        for image in [
            "registry.k8s.io/kube-scheduler:v1.36.3",
            "localhost:5000/mirror/kube-scheduler:v1.36.3@sha256:0123",
            "public.ecr.aws/eks-distro/kubernetes/kube-scheduler:v1.36.3-eks-1-36-4",
            "kube-scheduler:1.36",
        ] {
            assert_eq!(Minor::of_image(image), Some(minor("1.36")), "{image}");
        }
        for image in ["kube-scheduler", "localhost:5000/kube-scheduler", "kube-scheduler@sha256:0123", "x:latest"] {
            assert_eq!(Minor::of_image(image), None, "{image}");
        }
    }

    #[test]
    fn a_scheduler_may_be_one_minor_version_below_its_api_server_and_never_above() {
        for (scheduler, expected) in [
            ("1.38", Skew::Newer),
            ("2.0", Skew::Newer),
            ("1.37", Skew::Supported),
            ("1.36", Skew::Supported),
            ("1.35", Skew::TooOld),
            ("0.37", Skew::TooOld),
        ] {
            assert_eq!(skew(minor(scheduler), minor("1.37")), expected, "{scheduler}");
        }
    }
}
