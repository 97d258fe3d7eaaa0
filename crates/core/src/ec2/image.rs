//! Which image a node boots: families, variants, and the SSM parameters behind an alias.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::error::{CallError, ErrorClass};
use crate::ec2::machine::InstanceTypeInfo;

/// Operating system of an image: decides the form of the user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// Amazon Linux 2023, set up by nodeadm.
    #[serde(rename = "AL2023")]
    Al2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Anything else: its user data is passed as it is.
    Custom,
}

impl Family {
    /// Spelling of `amiFamily`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Al2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Custom => "Custom",
        }
    }
}

/// What a node's image must have beside Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Nothing.
    #[default]
    Standard,
    /// NVIDIA's driver.
    Nvidia,
    /// The Neuron driver.
    Neuron,
}

impl Variant {
    /// Spelling in paths and statuses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Nvidia => "nvidia",
            Self::Neuron => "neuron",
        }
    }
}

/// Architecture and variant: one image serves all types that agree in both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageKind {
    /// `x86_64` or `arm64`.
    pub architecture: String,
    /// Variant.
    pub variant: Variant,
}

impl ImageKind {
    /// What nodes of a type boot.
    #[must_use]
    pub fn of(info: &InstanceTypeInfo) -> Self {
        let nvidia = info.gpus.iter().any(|gpu| gpu.manufacturer.eq_ignore_ascii_case("nvidia"));
        let variant = match (nvidia, info.neuron_devices > 0) {
            (true, _) => Variant::Nvidia,
            (false, true) => Variant::Neuron,
            (false, false) => Variant::Standard,
        };
        // Older types are listed with `i386` before `x86_64`, and there is no image of it.
        let published = |name: &&String| matches!(name.as_str(), "x86_64" | "arm64");
        let architecture = info.architectures.iter().find(published).map_or("x86_64", String::as_str).to_owned();
        Self { architecture, variant }
    }
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.architecture, self.variant.as_str())
    }
}

/// `al2023@latest`, `bottlerocket@v1.45.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Family.
    pub family: Family,
    /// `None`: the newest, whenever it is resolved.
    pub version: Option<String>,
}

/// Why an alias is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AliasError {
    /// Neither of the two families, or no version.
    #[error("alias \"{0}\" is none of al2023@latest, al2023@vYYYYMMDD, bottlerocket@latest, bottlerocket@vX.Y.Z")]
    Form(String),
    /// AWS publishes no such image.
    #[error("there is no {family} image for {kind}", family = family.as_str())]
    NotPublished {
        /// Family.
        family: Family,
        /// Architecture and variant.
        kind: ImageKind,
    },
}

impl Alias {
    /// Reads an alias. Errors: [`AliasError::Form`].
    pub fn parse(text: &str) -> Result<Self, AliasError> {
        let wrong = || AliasError::Form(text.to_owned());
        let (family, version) = text.split_once('@').ok_or_else(wrong)?;
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let family = match family {
            "al2023" => Family::Al2023,
            "bottlerocket" => Family::Bottlerocket,
            _ => return Err(wrong()),
        };
        let fits = |version: &str| match family {
            Family::Al2023 => version.len() == 8 && digits(version),
            Family::Bottlerocket => version.split('.').count() == 3 && version.split('.').all(digits),
            Family::Custom => false,
        };
        let version = match version.strip_prefix('v') {
            _ if version == "latest" => None,
            Some(plain) if fits(plain) => Some(plain.to_owned()),
            Some(_) | None => return Err(wrong()),
        };
        Ok(Self { family, version })
    }

    /// The SSM parameter that holds the image's id, for a version `1.35` of Kubernetes.
    ///
    /// Sources: EKS user guide, "Retrieve recommended Amazon Linux AMI IDs" and "Retrieve recommended Bottlerocket AMI
    /// IDs". Errors: [`AliasError::NotPublished`].
    pub fn parameter(&self, kubernetes: &str, kind: &ImageKind) -> Result<String, AliasError> {
        let ImageKind { architecture, variant } = kind;
        let name = variant.as_str();
        match self.family {
            Family::Al2023 if *variant == Variant::Neuron && architecture != "x86_64" => {
                Err(AliasError::NotPublished { family: self.family, kind: kind.clone() })
            }
            Family::Al2023 => {
                let image = match &self.version {
                    None => "recommended".to_owned(),
                    Some(version) => format!("amazon-eks-node-al2023-{architecture}-{name}-{kubernetes}-v{version}"),
                };
                Ok(format!(
                    "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{architecture}/{name}/{image}/image_id"
                ))
            }
            Family::Bottlerocket => {
                // Neuron's driver is in the standard variant.
                let nvidia = if *variant == Variant::Nvidia { "-nvidia" } else { "" };
                let version = self.version.as_deref().unwrap_or("latest");
                Ok(format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{nvidia}/{architecture}/{version}/image_id"))
            }
            Family::Custom => Err(AliasError::NotPublished { family: self.family, kind: kind.clone() }),
        }
    }
}

/// For how long an image that was read from a parameter is taken without asking again: AWS publishes a few in a month, and
/// whoever waits for one does not want to wait for long.
const IMAGE_LIFE: SignedDuration = SignedDuration::from_mins(30);

/// Whether a parameter has to be read: never yet, or too long ago. A time to come is that of another clock.
#[must_use]
pub fn is_due(read: Option<Timestamp>, now: Timestamp) -> bool {
    !read.is_some_and(|read| read <= now && now.duration_since(read) < IMAGE_LIFE)
}

/// Whether an image that was read before goes on after its parameter could not be read: whatever hinders the reading says
/// nothing about the image, unless the parameter is gone or holds no image any more.
#[must_use]
pub fn outlives(error: &CallError) -> bool {
    error.kind != ErrorClass::Configuration
}

/// `1.35` of what an API server says, `1` and `35+`.
#[must_use]
pub fn kubernetes_version(major: &str, minor: &str) -> Option<String> {
    let number = |text: &str| {
        let digits: String = text.trim().chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then_some(digits)
    };
    Some(format!("{}.{}", number(major)?, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::machine::tests::p5;

    fn kind(architecture: &str, variant: Variant) -> ImageKind {
        ImageKind { architecture: architecture.to_owned(), variant }
    }

    #[test]
    fn aliases_lead_to_the_published_parameters() {
        let path = |alias: &str, kind| Alias::parse(alias).unwrap().parameter("1.35", &kind).unwrap();
        assert_eq!(
            path("al2023@latest", kind("x86_64", Variant::Nvidia)),
            "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
        );
        assert_eq!(
            path("al2023@v20261101", kind("arm64", Variant::Standard)),
            "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/arm64/standard/\
             amazon-eks-node-al2023-arm64-standard-1.35-v20261101/image_id"
        );
        assert_eq!(
            path("bottlerocket@latest", kind("x86_64", Variant::Nvidia)),
            "/aws/service/bottlerocket/aws-k8s-1.35-nvidia/x86_64/latest/image_id"
        );
        assert_eq!(
            path("bottlerocket@v1.45.0", kind("x86_64", Variant::Neuron)),
            "/aws/service/bottlerocket/aws-k8s-1.35/x86_64/1.45.0/image_id"
        );
        let none = Alias::parse("al2023@latest").unwrap().parameter("1.35", &kind("arm64", Variant::Neuron));
        assert_eq!(none.unwrap_err().to_string(), "there is no AL2023 image for arm64 neuron");
    }

    #[test]
    fn what_is_no_alias_is_stated_with_what_would_be_one() {
        for wrong in
            ["al2023", "al2023@", "al2023@20261101", "al2023@v2026", "al2@latest", "bottlerocket@v1.2", "@latest"]
        {
            let error = Alias::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("\"{wrong}\"")) && error.contains("al2023@latest"), "{error}");
        }
    }

    #[test]
    fn the_variant_follows_from_the_accelerators() {
        assert_eq!(ImageKind::of(&p5()), kind("x86_64", Variant::Nvidia));
        let trn = InstanceTypeInfo { gpus: Vec::new(), neuron_devices: 16, ..p5() };
        assert_eq!(ImageKind::of(&trn).variant, Variant::Neuron);
        let graviton = InstanceTypeInfo { gpus: Vec::new(), architectures: vec!["arm64".to_owned()], ..p5() };
        assert_eq!(ImageKind::of(&graviton), kind("arm64", Variant::Standard));
        // As EC2 lists t2, and a Mac.
        for architectures in [["i386", "x86_64"], ["x86_64_mac", "x86_64"]] {
            let old = InstanceTypeInfo { architectures: architectures.map(str::to_owned).to_vec(), ..p5() };
            assert_eq!(ImageKind::of(&old).architecture, "x86_64");
        }
    }

    #[test]
    fn an_image_is_read_again_after_half_an_hour_and_after_a_clock_that_went_back() {
        let at = |minutes: i64| Timestamp::from_second(1_800_000_000 + 60 * minutes).unwrap();
        assert!(is_due(None, at(0)));
        assert!(!is_due(Some(at(0)), at(0)) && !is_due(Some(at(0)), at(29)));
        assert!(is_due(Some(at(0)), at(30)));
        assert!(is_due(Some(at(1)), at(0)));
    }

    #[test]
    fn an_image_outlives_every_error_but_that_its_parameter_holds_none() {
        let error = |kind| CallError { kind, ..CallError::refused_here("GetParameter", String::new()) };
        for kind in [ErrorClass::Permission, ErrorClass::Throttle, ErrorClass::Server, ErrorClass::Unknown] {
            assert!(outlives(&error(kind)), "{kind:?}");
        }
        assert!(!outlives(&error(ErrorClass::Configuration)));
    }

    #[test]
    fn the_version_is_read_as_eks_writes_it() {
        assert_eq!(kubernetes_version("1", "35+").as_deref(), Some("1.35"));
        assert_eq!(kubernetes_version("1", "36").as_deref(), Some("1.36"));
        assert_eq!(kubernetes_version("1", ""), None);
    }
}
