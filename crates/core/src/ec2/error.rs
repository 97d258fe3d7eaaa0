//! One table of EC2's error codes, and what each class means for a launch.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A call that did not answer HTTP 200, or did not answer at all.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("call {operation}: {}{message}", self.code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default())]
#[serde(rename_all = "camelCase")]
pub struct CallError {
    /// EC2's name of the operation, `CreateFleet`.
    pub operation: String,
    /// What it means, by [`classify`].
    pub kind: ErrorClass,
    /// EC2's error code, if the answer named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// EC2's text, or what kept the call from being answered; one line.
    pub message: String,
    /// HTTP status, if there was an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// EC2's request id, for support cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl CallError {
    /// An error found before anything was sent: what is asked for cannot be a valid call.
    #[must_use]
    pub fn refused_here(operation: &str, message: impl Into<String>) -> Self {
        Self {
            operation: operation.to_owned(),
            kind: ErrorClass::Configuration,
            code: None,
            message: message.into(),
            http_status: None,
            request_id: None,
        }
    }
}

/// What an error code means to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorClass {
    /// No capacity for n in the pool ("insufficient capacity"): the only class that enters the unavailable offerings.
    Capacity,
    /// A Region-wide quota. No other zone helps.
    Quota,
    /// The spot quota. Blocks spot only.
    SpotQuota,
    /// Too many active fleets in the Region.
    FleetLimit,
    /// Too many placement groups in the Region.
    GroupLimit,
    /// The targeted reservation has too few free hosts; says nothing about the open pool.
    ReservationFull,
    /// The capacity block has not started.
    ReservationNotStarted,
    /// The type is not offered in that zone, or not in this combination.
    NotOffered,
    /// The subnet has too few free addresses.
    SubnetFull,
    /// EC2 asks to slow down.
    Throttle,
    /// EC2 has trouble of its own and says so with a code.
    Server,
    /// Nothing but a change of a class, a pool or a gang helps.
    Configuration,
    /// IAM or the account.
    Permission,
    /// The service-linked role for spot is missing. Blocks spot only.
    SpotForbidden,
    /// A resource that is gone, or that EC2 does not see yet.
    NotVisibleYet,
    /// The name is taken: adopt or reuse.
    AlreadyExists,
    /// Still used; try again in 5 to 30 seconds.
    InUse,
    /// The token was sent before with other parameters: a bug of ours.
    TokenMismatch,
    /// The instances of this token are gone.
    TokenSpent,
    /// A dry run that would have succeeded.
    DryRunPassed,
    /// Nothing left this machine: no credentials, or a request that cannot be built.
    NotSent,
    /// Timeout, reset, an answer without a code, or a code nobody knows: whether it was carried out is open.
    Unknown,
}

/// What a lost attempt leaves to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Next {
    /// The next candidate.
    OtherCandidate,
    /// The next candidate that does not use the capacity type.
    #[serde(rename = "otherMarket")]
    OtherCapacityType,
    /// The next candidate that does not count towards the quota.
    OtherQuota,
    /// The next candidate without a placement group of its own.
    WithoutGroup,
    /// The same candidate again, by RunInstances.
    WithoutFleet,
    /// The same candidate again, after a pause.
    SameCandidate,
    /// No candidate: wait for a person, a quota or a change.
    #[serde(rename = "stop")]
    Stop,
}

impl ErrorClass {
    /// Whether it says, of a launch into a reservation, that there is no free host: EC2 has two words for it.
    #[must_use]
    pub fn says_full(self) -> bool {
        matches!(self, Self::ReservationFull | Self::Capacity)
    }

    /// Whether EC2 let us make the call, as far as the permissions go; `None` where nobody looked at them, or who did is not
    /// known.
    #[must_use]
    pub fn permitted(self) -> Option<bool> {
        match self {
            Self::Permission => Some(false),
            Self::Throttle | Self::Server | Self::NotSent | Self::Unknown => None,
            Self::Capacity
            | Self::Quota
            | Self::SpotQuota
            | Self::FleetLimit
            | Self::GroupLimit
            | Self::ReservationFull
            | Self::ReservationNotStarted
            | Self::NotOffered
            | Self::SubnetFull
            | Self::Configuration
            | Self::SpotForbidden
            | Self::NotVisibleYet
            | Self::AlreadyExists
            | Self::InUse
            | Self::TokenMismatch
            | Self::TokenSpent
            | Self::DryRunPassed => Some(true),
        }
    }

    /// What is worth trying after an attempt lost for this reason.
    #[must_use]
    pub fn next(self) -> Next {
        match self {
            Self::Capacity
            | Self::NotOffered
            | Self::SubnetFull
            | Self::ReservationFull
            | Self::ReservationNotStarted => Next::OtherCandidate,
            Self::SpotQuota | Self::SpotForbidden => Next::OtherCapacityType,
            Self::GroupLimit => Next::WithoutGroup,
            Self::Quota => Next::OtherQuota,
            Self::FleetLimit => Next::WithoutFleet,
            Self::Throttle
            | Self::Server
            | Self::NotVisibleYet
            | Self::AlreadyExists
            | Self::InUse
            | Self::TokenMismatch
            | Self::TokenSpent
            | Self::DryRunPassed
            | Self::NotSent
            | Self::Unknown => Next::SameCandidate,
            Self::Configuration | Self::Permission => Next::Stop,
        }
    }
}

/// The documented codes. Descriptions: "Error codes for the Amazon EC2 API".
const CODES: &[(&str, ErrorClass)] = {
    use ErrorClass::*;
    &[
        ("InsufficientInstanceCapacity", Capacity),
        ("InsufficientCapacity", Capacity),
        ("InsufficientHostCapacity", Capacity),
        ("InsufficientReservedInstanceCapacity", Capacity),
        ("InsufficientVolumeCapacity", Capacity),
        ("UnfulfillableCapacity", Capacity),
        ("SpotMaxPriceTooLow", Capacity),
        ("MaxSpotInstanceCountExceeded", SpotQuota),
        ("VcpuLimitExceeded", Quota),
        ("InstanceLimitExceeded", Quota),
        ("NetworkInterfaceLimitExceeded", Quota),
        ("VolumeLimitExceeded", Quota),
        ("MaxIOPSLimitExceeded", Quota),
        ("MaxFleetCountExceeded", FleetLimit),
        ("PlacementGroupLimitExceeded", GroupLimit),
        ("ReservationCapacityExceeded", ReservationFull),
        ("InvalidCapacityReservationState.PendingActivation", ReservationNotStarted),
        ("InvalidCapacityReservationId.NotFound", Configuration),
        ("InvalidCapacityReservationId.Malformed", Configuration),
        ("InvalidLaunchTargets", Configuration),
        ("Unsupported", NotOffered),
        ("InvalidFleetConfiguration", NotOffered),
        ("InsufficientFreeAddressesInSubnet", SubnetFull),
        ("PrivateIpAddressLimitExceeded", Configuration),
        ("SecurityGroupsPerInterfaceLimitExceeded", Configuration),
        ("AttachmentLimitExceeded", Configuration),
        ("RequestLimitExceeded", Throttle),
        ("Throttling", Throttle),
        ("ThrottlingException", Throttle),
        ("EC2ThrottledException", Throttle),
        ("BandwidthLimitExceeded", Throttle),
        ("PriorRequestNotComplete", Throttle),
        ("Unavailable", Server),
        ("ServiceUnavailable", Server),
        ("InternalError", Server),
        ("InternalFailure", Server),
        ("ServerInternal", Server),
        ("ResourceCountExceeded", Configuration),
        ("RequestResourceCountExceeded", Configuration),
        ("IdempotentParameterMismatch", TokenMismatch),
        ("IdempotentInstanceTerminated", TokenSpent),
        ("InvalidPlacementGroup.Unknown", NotVisibleYet),
        ("InvalidPlacementGroup.Duplicate", AlreadyExists),
        ("InvalidPlacementGroup.InUse", InUse),
        ("InvalidPlacementGroupId.Malformed", Configuration),
        ("InvalidLaunchTemplateId.NotFound", NotVisibleYet),
        ("InvalidLaunchTemplateId.NotFoundException", NotVisibleYet),
        ("InvalidLaunchTemplateName.NotFoundException", NotVisibleYet),
        ("InvalidLaunchTemplateId.VersionNotFound", NotVisibleYet),
        ("InvalidLaunchTemplateName.AlreadyExistsException", AlreadyExists),
        ("InvalidInstanceID.NotFound", NotVisibleYet),
        ("InvalidFleetId.NotFound", NotVisibleYet),
        ("InvalidParameterValue", Configuration),
        ("InvalidParameterCombination", Configuration),
        ("InvalidSubnetID.NotFound", Configuration),
        ("InvalidSecurityGroupID.NotFound", Configuration),
        ("InvalidUserData.Malformed", Configuration),
        ("MissingParameter", Configuration),
        ("UnauthorizedOperation", Permission),
        ("ExpiredTokenException", Permission),
        ("UnrecognizedClientException", Permission),
        ("InvalidSignatureException", Permission),
        ("OptInRequired", Permission),
        ("PendingVerification", Permission),
        ("Blocked", Permission),
        ("InvalidClientTokenId", Permission),
        ("MissingAuthenticationToken", Permission),
        ("RequestExpired", Permission),
        ("ExpiredToken", Permission),
        ("SignatureDoesNotMatch", Permission),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", SpotForbidden),
        ("DryRunOperation", DryRunPassed),
    ]
};

/// Families: any other code that begins so.
const FAMILIES: &[(&str, ErrorClass)] = &[
    ("AuthFailure", ErrorClass::Permission),
    ("AccessDenied", ErrorClass::Permission),
    ("InvalidAMIID.", ErrorClass::Configuration),
    ("Invalid", ErrorClass::Configuration),
    ("Missing", ErrorClass::Configuration),
    ("Malformed", ErrorClass::Configuration),
];

/// Class of an error code, found in an exception (with its HTTP status) or in an item of a fleet's errors (without).
///
/// Capacity, quota and permission codes keep their class whatever the status: EC2 sends insufficient capacity with status 500. A code
/// nobody knows is [`ErrorClass::Server`] with a 5xx, [`ErrorClass::Configuration`] with a 4xx, else
/// [`ErrorClass::Unknown`]. No code at all is always `Unknown`: whoever answered may not have been EC2.
#[must_use]
pub fn classify(code: Option<&str>, http_status: Option<u16>) -> ErrorClass {
    let Some(code) = code.filter(|code| !code.is_empty()) else {
        return ErrorClass::Unknown;
    };
    let exact = CODES.iter().find(|(known, _)| *known == code);
    let family = || FAMILIES.iter().find(|(start, _)| code.starts_with(start));
    match (exact.or_else(family), http_status) {
        (Some((_, class)), _) => *class,
        (None, Some(status)) if status >= 500 => ErrorClass::Server,
        (None, Some(status)) if (400..500).contains(&status) => ErrorClass::Configuration,
        (None, Some(_) | None) => ErrorClass::Unknown,
    }
}

/// The code, if it is one that has a class of its own: a closed list.
#[must_use]
pub fn known_code(code: &str) -> Option<&'static str> {
    CODES.iter().find(|(known, _)| *known == code).map(|(known, _)| *known)
}

#[cfg(test)]
#[path = "error_table_tests.rs"]
mod table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_code_has_its_class_with_and_without_a_status() {
        use ErrorClass::*;
        // Written out a second time on purpose: the table above is the claim, this is the check.
        let rows: &[(ErrorClass, &[&str])] = &[
            (
                Capacity,
                &[
                    "InsufficientInstanceCapacity",
                    "InsufficientCapacity",
                    "InsufficientHostCapacity",
                    "InsufficientReservedInstanceCapacity",
                    "InsufficientVolumeCapacity",
                    "UnfulfillableCapacity",
                    "SpotMaxPriceTooLow",
                ],
            ),
            (SpotQuota, &["MaxSpotInstanceCountExceeded"]),
            (
                Quota,
                &[
                    "VcpuLimitExceeded",
                    "InstanceLimitExceeded",
                    "NetworkInterfaceLimitExceeded",
                    "VolumeLimitExceeded",
                    "MaxIOPSLimitExceeded",
                ],
            ),
            (FleetLimit, &["MaxFleetCountExceeded"]),
            (GroupLimit, &["PlacementGroupLimitExceeded"]),
            (ReservationFull, &["ReservationCapacityExceeded"]),
            (ReservationNotStarted, &["InvalidCapacityReservationState.PendingActivation"]),
            (NotOffered, &["Unsupported", "InvalidFleetConfiguration"]),
            (SubnetFull, &["InsufficientFreeAddressesInSubnet"]),
            (
                Throttle,
                &[
                    "RequestLimitExceeded",
                    "Throttling",
                    "ThrottlingException",
                    "EC2ThrottledException",
                    "BandwidthLimitExceeded",
                    "PriorRequestNotComplete",
                ],
            ),
            (Server, &["Unavailable", "ServiceUnavailable", "InternalError", "InternalFailure", "ServerInternal"]),
            (
                Configuration,
                &[
                    "InvalidCapacityReservationId.NotFound",
                    "InvalidCapacityReservationId.Malformed",
                    "InvalidLaunchTargets",
                    "PrivateIpAddressLimitExceeded",
                    "SecurityGroupsPerInterfaceLimitExceeded",
                    "AttachmentLimitExceeded",
                    "ResourceCountExceeded",
                    "RequestResourceCountExceeded",
                    "InvalidPlacementGroupId.Malformed",
                    "InvalidAMIID.NotFound",
                    "InvalidAMIID.Unavailable",
                    "InvalidParameterValue",
                    "InvalidParameterCombination",
                    "InvalidSubnetID.NotFound",
                    "InvalidSecurityGroupID.NotFound",
                    "InvalidUserData.Malformed",
                    "MissingParameter",
                ],
            ),
            (
                Permission,
                &[
                    "UnauthorizedOperation",
                    "AuthFailure",
                    "AuthFailure.SomethingNew",
                    "OptInRequired",
                    "PendingVerification",
                    "Blocked",
                    "InvalidClientTokenId",
                    "MissingAuthenticationToken",
                    "RequestExpired",
                    "ExpiredToken",
                    "SignatureDoesNotMatch",
                    "AccessDenied",
                    "AccessDeniedException",
                    "ExpiredTokenException",
                    "UnrecognizedClientException",
                    "InvalidSignatureException",
                ],
            ),
            (SpotForbidden, &["AuthFailure.ServiceLinkedRoleCreationNotPermitted"]),
            (
                NotVisibleYet,
                &[
                    "InvalidPlacementGroup.Unknown",
                    "InvalidLaunchTemplateId.NotFound",
                    "InvalidLaunchTemplateId.NotFoundException",
                    "InvalidLaunchTemplateName.NotFoundException",
                    "InvalidLaunchTemplateId.VersionNotFound",
                    "InvalidInstanceID.NotFound",
                    "InvalidFleetId.NotFound",
                ],
            ),
            (AlreadyExists, &["InvalidPlacementGroup.Duplicate", "InvalidLaunchTemplateName.AlreadyExistsException"]),
            (InUse, &["InvalidPlacementGroup.InUse"]),
            (TokenMismatch, &["IdempotentParameterMismatch"]),
            (TokenSpent, &["IdempotentInstanceTerminated"]),
            (DryRunPassed, &["DryRunOperation"]),
        ];
        for (class, codes) in rows {
            for code in *codes {
                for status in [None, Some(400), Some(500)] {
                    assert_eq!(classify(Some(code), status), *class, "{code} {status:?}");
                }
            }
        }
        for (code, _) in CODES {
            assert!(rows.iter().any(|(_, codes)| codes.contains(code)), "{code} has no test row");
        }
    }

    #[test]
    fn only_codes_of_the_list_are_known() {
        assert_eq!(known_code("UnauthorizedOperation"), Some("UnauthorizedOperation"));
        assert_eq!(known_code("Novelty"), None);
    }

    #[test]
    fn codes_nobody_knows_go_by_the_status() {
        assert_eq!(classify(Some("Novelty"), Some(503)), ErrorClass::Server);
        assert_eq!(classify(Some("Novelty"), Some(400)), ErrorClass::Configuration);
        assert_eq!(classify(Some("Novelty"), None), ErrorClass::Unknown);
    }

    #[test]
    fn only_an_answer_of_ec2_tells_whether_a_call_is_permitted() {
        assert_eq!(ErrorClass::Permission.permitted(), Some(false));
        assert_eq!(ErrorClass::Capacity.permitted(), Some(true));
        assert_eq!(ErrorClass::DryRunPassed.permitted(), Some(true));
        for nobody in [ErrorClass::Throttle, ErrorClass::Server, ErrorClass::NotSent, ErrorClass::Unknown] {
            assert_eq!(nobody.permitted(), None, "{nobody:?}");
        }
    }

    #[test]
    fn without_a_code_the_outcome_is_open_whatever_the_status() {
        for status in [None, Some(200), Some(400), Some(403), Some(500), Some(503)] {
            assert_eq!(classify(None, status), ErrorClass::Unknown);
            assert_eq!(classify(Some(""), status), ErrorClass::Unknown);
        }
    }

    #[test]
    fn an_error_reads_as_one_line_behind_failed_to() {
        let mut error = CallError::refused_here("CreateFleet", "count is 0");
        assert_eq!(error.to_string(), "call CreateFleet: count is 0");
        error.code = Some("InvalidParameterValue".to_owned());
        assert_eq!(error.to_string(), "call CreateFleet: InvalidParameterValue: count is 0");
    }
}
