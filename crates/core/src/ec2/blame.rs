//! Which field of an EC2NodeClass a refused launch is to be blamed on.

use super::error::ErrorClass;

/// The part of a class that has to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// The image.
    Image,
    /// A subnet.
    Subnets,
    /// A security group.
    SecurityGroups,
    /// The instance profile.
    InstanceProfile,
    /// A reservation.
    Reservations,
    /// User data, disks, interfaces or another parameter.
    Parameters,
}

impl Blame {
    /// Reads it off EC2's code and text; `None` for what no class is to blame for: capacity, quotas, trouble, sizes.
    #[must_use]
    pub fn of(kind: ErrorClass, code: Option<&str>, message: &str) -> Option<Self> {
        match kind {
            ErrorClass::Configuration => {}
            // Not of the class: the identity lacks a right, whatever the class says.
            ErrorClass::Permission
            | ErrorClass::Capacity
            | ErrorClass::Quota
            | ErrorClass::SpotQuota
            | ErrorClass::FleetLimit
            | ErrorClass::GroupLimit
            | ErrorClass::ReservationFull
            | ErrorClass::ReservationNotStarted
            | ErrorClass::NotOffered
            | ErrorClass::SubnetFull
            | ErrorClass::Throttle
            | ErrorClass::Server
            | ErrorClass::SpotForbidden
            | ErrorClass::NotVisibleYet
            | ErrorClass::AlreadyExists
            | ErrorClass::InUse
            | ErrorClass::TokenMismatch
            | ErrorClass::TokenSpent
            | ErrorClass::DryRunPassed
            | ErrorClass::NotSent
            | ErrorClass::Unknown => return None,
        }
        let code = code?;
        let stated = message.to_ascii_lowercase();
        Some(match code {
            // The gang is too large; no class mends that.
            "ResourceCountExceeded" | "RequestResourceCountExceeded" => return None,
            // A name of ours.
            "InvalidPlacementGroupId.Malformed" => return None,
            _ if code.starts_with("InvalidAMIID") => Self::Image,
            _ if code.starts_with("InvalidSubnet") => Self::Subnets,
            _ if code.starts_with("InvalidSecurityGroup") || code.starts_with("InvalidGroup") => Self::SecurityGroups,
            _ if code.starts_with("InvalidCapacityReservation") => Self::Reservations,
            _ if stated.contains("instance profile") || code.starts_with("InvalidIamInstanceProfile") => {
                Self::InstanceProfile
            }
            _ => Self::Parameters,
        })
    }

    /// The condition of the class that turns false.
    #[must_use]
    pub fn condition(self) -> &'static str {
        match self {
            Self::Image => "AMIsReady",
            Self::Subnets => "SubnetsReady",
            Self::SecurityGroups => "SecurityGroupsReady",
            Self::InstanceProfile => "InstanceProfileReady",
            Self::Reservations => "CapacityReservationsReady",
            Self::Parameters => "ValidationSucceeded",
        }
    }

    /// The reason in it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Image => "AMINotFound",
            Self::Subnets => "SubnetsNotFound",
            Self::SecurityGroups => "SecurityGroupsNotFound",
            Self::InstanceProfile => "InstanceProfileNotFound",
            Self::Reservations => "ReservationNotFound",
            Self::Parameters => "LaunchRefused",
        }
    }

    /// The field to look at.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Image => "spec.amiSelectorTerms",
            Self::Subnets => "spec.subnetSelectorTerms",
            Self::SecurityGroups => "spec.securityGroupSelectorTerms",
            Self::InstanceProfile => "spec.role or spec.instanceProfile",
            Self::Reservations => "spec.capacityReservationSelectorTerms",
            Self::Parameters => "spec",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::classify;

    #[test]
    fn a_refused_launch_is_blamed_on_the_field_that_has_to_change() {
        for (code, message, blame) in [
            ("InvalidAMIID.NotFound", "", Some(Blame::Image)),
            ("InvalidSubnetID.NotFound", "", Some(Blame::Subnets)),
            ("InvalidSecurityGroupID.NotFound", "", Some(Blame::SecurityGroups)),
            ("InvalidGroup.NotFound", "", Some(Blame::SecurityGroups)),
            (
                "InvalidParameterValue",
                "Value (nodes) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
                Some(Blame::InstanceProfile),
            ),
            ("InvalidCapacityReservationId.NotFound", "", Some(Blame::Reservations)),
            ("InvalidUserData.Malformed", "", Some(Blame::Parameters)),
            ("UnauthorizedOperation", "", None),
            ("ResourceCountExceeded", "", None),
            ("InsufficientInstanceCapacity", "", None),
            ("VcpuLimitExceeded", "", None),
            ("RequestLimitExceeded", "", None),
        ] {
            assert_eq!(Blame::of(classify(Some(code), Some(400)), Some(code), message), blame, "{code}");
        }
    }
}
