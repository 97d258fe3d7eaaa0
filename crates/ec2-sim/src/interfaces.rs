//! Network interfaces of a launch: reading them and refusing layouts that EC2 refuses.

use std::collections::BTreeSet;

use crate::fixtures::InstanceType;
use crate::protocol::error::ApiError;
use crate::protocol::form::Form;
use crate::state::instances::InterfaceKind;

/// One `NetworkInterface.N` of a launch template or a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterfaceSpec {
    pub(crate) card: u32,
    pub(crate) device: u32,
    pub(crate) kind: InterfaceKind,
    pub(crate) prefixes: u32,
    /// IPv6 addresses, and whether the first of them stays its primary one.
    pub(crate) ipv6: u32,
    pub(crate) primary_ipv6: bool,
}

impl InterfaceSpec {
    /// The one of a launch that says nothing of interfaces.
    pub(crate) fn plain() -> Self {
        Self { card: 0, device: 0, kind: InterfaceKind::Plain, prefixes: 0, ipv6: 0, primary_ipv6: false }
    }

    /// Addresses taken from the subnet: none for `efa-only`, and 16 for each prefix besides its
    /// own.
    pub(crate) fn addresses(&self) -> u32 {
        match self.kind {
            InterfaceKind::EfaOnly => 0,
            InterfaceKind::Plain | InterfaceKind::Efa => 1 + 16 * self.prefixes,
        }
    }
}

/// Reads the interfaces; without any there is one plain one.
///
/// # Errors
/// What EC2 answers to a layout that the type cannot have; `refusal` is the code of a refused
/// combination.
pub(crate) fn interfaces(
    data: &Form,
    instance_type: &InstanceType,
    refusal: &str,
) -> Result<Vec<InterfaceSpec>, ApiError> {
    let given = data.structs("NetworkInterface");
    if given.is_empty() {
        return Ok(vec![InterfaceSpec::plain()]);
    }
    if data.has("SecurityGroupId") || data.has("SecurityGroup") {
        return Err(ApiError::client(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same request",
        ));
    }
    let specs: Vec<InterfaceSpec> = given.iter().map(|form| interface(form, given.len())).collect::<Result<_, _>>()?;
    check(&specs, instance_type, refusal)?;
    Ok(specs)
}

/// The security groups of a launch: those of its interfaces, or those of the whole.
pub(crate) fn security_groups(data: &Form) -> Vec<String> {
    let mut groups: BTreeSet<String> =
        data.structs("NetworkInterface").iter().flat_map(|i| i.list("SecurityGroupId")).collect();
    groups.extend(data.list("SecurityGroupId"));
    groups.into_iter().collect()
}

fn interface(form: &Form, count: usize) -> Result<InterfaceSpec, ApiError> {
    let kind = form.get("InterfaceType").unwrap_or("interface");
    let kind = InterfaceKind::parse(kind).ok_or_else(|| ApiError::value("InterfaceType", kind))?;
    let spec = InterfaceSpec {
        card: form.number("NetworkCardIndex")?.unwrap_or(0),
        device: form.number("DeviceIndex")?.ok_or_else(|| ApiError::missing("DeviceIndex"))?,
        kind,
        prefixes: form.number("Ipv4PrefixCount")?.unwrap_or(0),
        ipv6: form.number("Ipv6AddressCount")?.unwrap_or(0),
        primary_ipv6: form.flag("PrimaryIpv6")?,
    };
    let addressed = [
        "PrivateIpAddress",
        "PrivateIpAddresses",
        "SecondaryPrivateIpAddressCount",
        "Ipv4PrefixCount",
        "Ipv4Prefix",
        "Ipv6AddressCount",
        "Ipv6Addresses",
        "Ipv6PrefixCount",
        "PrimaryIpv6",
        "AssociatePublicIpAddress",
        "ConnectionTrackingSpecification",
    ];
    if kind == InterfaceKind::EfaOnly
        && let Some(name) = addressed.iter().find(|name| form.has(name))
    {
        return Err(ApiError::client(
            "InvalidParameterValue",
            format!("{name} cannot be set on a network interface of type efa-only"),
        ));
    }
    if form.has("Ipv6AddressCount") && form.has("Ipv6Addresses") {
        return Err(ApiError::client(
            "InvalidParameterCombination",
            "The parameters Ipv6AddressCount and Ipv6Addresses may not be specified on the same request",
        ));
    }
    if count > 1 && form.flag("AssociatePublicIpAddress")? {
        return Err(ApiError::client(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.",
        ));
    }
    Ok(spec)
}

fn check(specs: &[InterfaceSpec], instance_type: &InstanceType, refusal: &str) -> Result<(), ApiError> {
    let name = &instance_type.name;
    let cards = instance_type.cards();
    let card_of = |card: u32| usize::try_from(card).ok().and_then(|at| cards.get(at));
    let refuse = |message: String| Err(ApiError::client(refusal, message));
    let mut places = BTreeSet::new();
    for spec in specs {
        let Some(card) = card_of(spec.card) else {
            return refuse(format!("{name} has no network card {}", spec.card));
        };
        if !places.insert((spec.card, spec.device)) {
            return refuse(format!(
                "Each network interface requires a unique device index: card {} device {}",
                spec.card, spec.device
            ));
        }
        if !card.kinds.iter().any(|kind| kind == spec.kind.name()) {
            return refuse(format!("Network card {} of {name} does not support {}", spec.card, spec.kind.name()));
        }
    }
    let Some(primary) = specs.iter().find(|s| s.card == 0 && s.device == 0) else {
        return refuse("A primary network interface (card 0, device 0) is required".to_owned());
    };
    if primary.kind == InterfaceKind::EfaOnly {
        return refuse("The primary network interface cannot be of type efa-only".to_owned());
    }
    for (card, facts) in (0u32..).zip(&cards) {
        let on_card = || specs.iter().filter(|s| s.card == card);
        if on_card().filter(|s| s.kind != InterfaceKind::Plain).count() > 1 {
            return refuse(format!("Network card {card} takes one EFA at most"));
        }
        if on_card().count() > facts.interfaces as usize {
            return Err(ApiError::client(
                "AttachmentLimitExceeded",
                format!("Interface count exceeds the limit of network card {card} of {name}"),
            ));
        }
    }
    if specs.len() > instance_type.network.interfaces as usize {
        return Err(ApiError::client(
            "AttachmentLimitExceeded",
            format!("Interface count {} exceeds the limit for {name}", specs.len()),
        ));
    }
    Ok(())
}
