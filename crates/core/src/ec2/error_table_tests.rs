//! The table of EC2's error codes, row by row: as an exception and as an item of a fleet's errors, what the attempt is
//! then, what is tried next, and whether the pool is marked as without capacity.

use super::*;
use crate::batch::{Confirm, Verdict, judge};
use crate::ec2::{FleetError, LaunchAnswer};
use crate::model::launch::tests::parameters;

/// What one answer leaves.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// Nothing was launched; this is tried next.
    Lost(Next),
    /// The same token again after a back-off.
    SameToken,
    /// Attempt+1 on the same candidate, once nothing was found.
    SameCandidate,
    /// Attempt+1 once nothing was found: the token is no good any more.
    NewToken,
    /// Open: replay, look, then decide.
    Open,
}

fn left(verdict: &Verdict) -> (Left, bool) {
    match verdict {
        Verdict::Lost { why, unavailable, .. }
        | Verdict::Quota { why, unavailable, .. }
        | Verdict::Configuration { why, unavailable, .. } => (Left::Lost(why.kind.next()), !unavailable.is_empty()),
        Verdict::NotDecided { .. } => (Left::SameToken, false),
        Verdict::Throttled { unavailable, .. } => (Left::SameCandidate, !unavailable.is_empty()),
        Verdict::TokenRefused { .. } => (Left::NewToken, false),
        Verdict::Unknown { unavailable, .. } => (Left::Open, !unavailable.is_empty()),
        Verdict::Won(_) | Verdict::Violated(_) => panic!("no instances, but {verdict:?}"),
    }
}

#[track_caller]
fn exception(code: &str, status: u16, wanted: Left, marks: bool) {
    let error = CallError {
        operation: "RunInstances".to_owned(),
        kind: classify(Some(code), Some(status)),
        code: Some(code.to_owned()),
        message: String::new(),
        http_status: Some(status),
        request_id: None,
    };
    assert_eq!(left(&judge(&parameters(), true, &Err(error))), (wanted, marks), "{code} as an exception");
}

#[track_caller]
fn item(code: &str, wanted: Left, marks: bool) {
    let item = FleetError { code: code.to_owned(), message: String::new(), instance_type: None, zone: None };
    let answer = LaunchAnswer {
        fleet_id: Some("fleet-1".to_owned()),
        request_id: None,
        instances: Vec::new(),
        errors: vec![item],
    };
    let verdict = judge(&parameters(), true, &Ok(answer));
    match &verdict {
        Verdict::Lost { confirm, .. } | Verdict::Quota { confirm, .. } | Verdict::Configuration { confirm, .. } => {
            assert_eq!(*confirm, Confirm::FleetAndSweep, "{code}: an empty list alone proves nothing");
        }
        Verdict::Won(_)
        | Verdict::Violated(_)
        | Verdict::Throttled { .. }
        | Verdict::NotDecided { .. }
        | Verdict::TokenRefused { .. }
        | Verdict::Unknown { .. } => {}
    }
    assert_eq!(left(&verdict), (wanted, marks), "{code} as an item");
}

#[test]
fn missing_capacity_in_any_spelling_marks_the_pool_and_goes_on() {
    for code in [
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
    ] {
        exception(code, 500, Left::Lost(Next::OtherCandidate), true);
        item(code, Left::Lost(Next::OtherCandidate), true);
    }
}

#[test]
fn a_quota_tries_no_other_zone_and_marks_no_pool() {
    for code in [
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "NetworkInterfaceLimitExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
    ] {
        exception(code, 400, Left::Lost(Next::OtherQuota), false);
        item(code, Left::Lost(Next::OtherQuota), false);
    }
    exception("MaxSpotInstanceCountExceeded", 400, Left::Lost(Next::OtherCapacityType), false);
    item("MaxSpotInstanceCountExceeded", Left::Lost(Next::OtherCapacityType), false);
}

#[test]
fn limits_of_the_region_leave_a_way_around_them() {
    exception("MaxFleetCountExceeded", 400, Left::Lost(Next::WithoutFleet), false);
    item("MaxFleetCountExceeded", Left::Lost(Next::WithoutFleet), false);
    exception("PlacementGroupLimitExceeded", 400, Left::Lost(Next::WithoutGroup), false);
}

#[test]
fn a_reservation_that_is_full_or_not_started_is_no_verdict_on_the_pool() {
    for code in ["ReservationCapacityExceeded", "InvalidCapacityReservationState.PendingActivation"] {
        exception(code, 400, Left::Lost(Next::OtherCandidate), false);
        item(code, Left::Lost(Next::OtherCandidate), false);
    }
    for code in
        ["InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed", "InvalidLaunchTargets"]
    {
        exception(code, 400, Left::Lost(Next::Stop), false);
        item(code, Left::Lost(Next::Stop), false);
    }
}

#[test]
fn a_zone_that_does_not_sell_and_a_full_subnet_lead_to_another_candidate() {
    for code in ["Unsupported", "InvalidFleetConfiguration", "InsufficientFreeAddressesInSubnet"] {
        exception(code, 400, Left::Lost(Next::OtherCandidate), false);
        item(code, Left::Lost(Next::OtherCandidate), false);
    }
}

#[test]
fn throttles_and_trouble_in_ec2_decide_nothing_outside_and_ask_again_inside_an_answer() {
    for (code, status) in [
        ("RequestLimitExceeded", 503),
        ("Unavailable", 503),
        ("ServiceUnavailable", 503),
        ("InternalError", 500),
        ("InternalFailure", 500),
        ("ServerInternal", 500),
    ] {
        exception(code, status, Left::SameToken, false);
        item(code, Left::SameCandidate, false);
    }
}

#[test]
fn configuration_and_permission_stop() {
    for code in [
        "PrivateIpAddressLimitExceeded",
        "SecurityGroupsPerInterfaceLimitExceeded",
        "AttachmentLimitExceeded",
        "ResourceCountExceeded",
        "RequestResourceCountExceeded",
        "InvalidPlacementGroupId.Malformed",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Malformed",
        "InvalidParameterValue",
        "InvalidParameterCombination",
        "InvalidSubnetID.NotFound",
        "InvalidSecurityGroupID.NotFound",
        "InvalidUserData.Malformed",
        "MissingParameter",
        "OptInRequired",
        "PendingVerification",
        "Blocked",
        "AuthFailure",
    ] {
        exception(code, 400, Left::Lost(Next::Stop), false);
        item(code, Left::Lost(Next::Stop), false);
    }
    exception("UnauthorizedOperation", 403, Left::Lost(Next::Stop), false);
    item("UnauthorizedOperation", Left::Lost(Next::Stop), false);
    let role = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    exception(role, 403, Left::Lost(Next::OtherCapacityType), false);
    item(role, Left::Lost(Next::OtherCapacityType), false);
}

#[test]
fn a_token_that_is_refused_is_never_sent_again() {
    for code in ["IdempotentParameterMismatch", "IdempotentInstanceTerminated"] {
        exception(code, 400, Left::NewToken, false);
        item(code, Left::NewToken, false);
    }
}

#[test]
fn what_ec2_does_not_see_yet_is_asked_for_again() {
    for code in [
        "InvalidPlacementGroup.Unknown",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.VersionNotFound",
    ] {
        exception(code, 400, Left::SameToken, false);
        item(code, Left::SameCandidate, false);
    }
}

#[test]
fn a_code_that_belongs_to_another_call_leaves_the_outcome_open() {
    for code in [
        "InvalidPlacementGroup.Duplicate",
        "InvalidPlacementGroup.InUse",
        "InvalidLaunchTemplateName.AlreadyExistsException",
        "DryRunOperation",
    ] {
        exception(code, 400, Left::Open, false);
        item(code, Left::Open, false);
    }
}
