//! Network interfaces of a node, with EFA where it is wanted.

use serde::{Deserialize, Serialize};

use super::interface::{InterfaceKind, NetworkInterface};
use super::machine::{InstanceTypeInfo, NetworkCard};

/// `efa` of an EC2NodeClass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Efa {
    /// For gang batches, and for pods that request EFA.
    #[default]
    Auto,
    /// On every type that has it.
    Always,
    /// Nowhere.
    Never,
}

/// What nodes are provisioned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// A gang.
    Gang,
    /// Ordinary pods that request `vpc.amazonaws.com/efa`.
    EfaPods,
    /// Ordinary pods.
    Ordinary,
}

/// The interfaces of a node, in order of card and device.
///
/// Card 0 / device 0 carries the address. With EFA: an `efa-only` on card 0 / device 1 if card 0 has capacity for it (else
/// device 0 is an `efa`), and one EFA on every further card: `efa-only` on device 0, or on cards that do not know
/// `efa-only` an `efa` on device 1. Cards are those the type reports, so a card 0 without EFA gets none, and there are
/// never more EFA interfaces than the type's maximum. A type without EFA gets one plain interface whatever `efa` says.
/// Source: EC2 User Guide, "Maximize network bandwidth with EFA".
#[must_use]
pub fn efa_layout(
    info: &InstanceTypeInfo,
    efa: Efa,
    purpose: Purpose,
    security_groups: &[String],
) -> Vec<NetworkInterface> {
    let wanted = match (efa, purpose) {
        (Efa::Always, _) | (Efa::Auto, Purpose::Gang | Purpose::EfaPods) => info.efa_max,
        (Efa::Never, _) | (Efa::Auto, Purpose::Ordinary) => 0,
    };
    let interface = |card, device, kind| NetworkInterface {
        card,
        device,
        kind,
        security_groups: security_groups.to_vec(),
        delete_on_termination: true,
    };
    let mut cards: Vec<&NetworkCard> = info.network_cards.iter().collect();
    cards.sort_by_key(|card| card.index);

    let mut layout = vec![interface(0, 0, InterfaceKind::Interface)];
    for card in cards {
        if efa_count(&layout) >= wanted {
            break;
        }
        let efa_only = card.takes(InterfaceKind::EfaOnly);
        match (card.index, efa_only, card.takes(InterfaceKind::Efa)) {
            (0, true, _) if card.max_interfaces >= 2 => layout.push(interface(0, 1, InterfaceKind::EfaOnly)),
            (0, _, true) => layout[0].kind = InterfaceKind::Efa,
            (1.., true, _) => layout.push(interface(card.index, 0, InterfaceKind::EfaOnly)),
            (1.., false, true) => layout.push(interface(card.index, 1, InterfaceKind::Efa)),
            (_, _, false) => {}
        }
    }
    layout
}

/// Interfaces that are EFA devices.
#[must_use]
pub fn efa_count(layout: &[NetworkInterface]) -> u32 {
    count(layout, |kind| matches!(kind, InterfaceKind::Efa | InterfaceKind::EfaOnly))
}

/// Addresses a node takes from its subnet at launch: one per interface that is not `efa-only`.
#[must_use]
pub fn addresses_per_node(layout: &[NetworkInterface]) -> u32 {
    count(layout, |kind| matches!(kind, InterfaceKind::Interface | InterfaceKind::Efa))
}

fn count(layout: &[NetworkInterface], which: impl Fn(InterfaceKind) -> bool) -> u32 {
    u32::try_from(layout.iter().filter(|entry| which(entry.kind)).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec2::interface::InterfaceKind::{Efa as EfaKind, EfaOnly, Interface};
    use crate::ec2::machine::tests::{card, p5};

    fn with_cards(efa_max: u32, network_cards: Vec<NetworkCard>) -> InstanceTypeInfo {
        InstanceTypeInfo { efa_max, network_cards, ..p5() }
    }

    fn shape(info: &InstanceTypeInfo, efa: Efa, purpose: Purpose) -> Vec<(u32, u32, InterfaceKind)> {
        efa_layout(info, efa, purpose, &["sg-1".to_owned()])
            .iter()
            .map(|nic| (nic.card, nic.device, nic.kind))
            .collect()
    }

    #[test]
    fn p5_gets_one_address_and_thirty_two_efa_devices() {
        let layout = shape(&p5(), Efa::Auto, Purpose::Gang);
        assert_eq!(layout.len(), 33);
        assert_eq!(layout[..3], [(0, 0, Interface), (0, 1, EfaOnly), (1, 0, EfaOnly)]);
        assert_eq!(layout[32], (31, 0, EfaOnly));
        let full = efa_layout(&p5(), Efa::Auto, Purpose::Gang, &[]);
        assert_eq!((efa_count(&full), addresses_per_node(&full)), (32, 1));
    }

    #[test]
    fn p6_b300_keeps_its_card_0_plain() {
        let all = [Interface, EfaKind, EfaOnly];
        let cards = (0..17).map(|index| card(index, if index == 0 { &[Interface] } else { &all }, 4)).collect();
        let layout = shape(&with_cards(16, cards), Efa::Auto, Purpose::Gang);
        assert_eq!(layout.len(), 17);
        assert_eq!(layout[..2], [(0, 0, Interface), (1, 0, EfaOnly)]);
        assert_eq!(layout.iter().filter(|(card, ..)| *card == 0).count(), 1);
    }

    #[test]
    fn cards_that_only_know_efa_get_the_older_pattern() {
        let cards = (0..4).map(|index| card(index, &[Interface, EfaKind], 15)).collect();
        let layout = shape(&with_cards(4, cards), Efa::Always, Purpose::Ordinary);
        assert_eq!(layout, [(0, 0, EfaKind), (1, 1, EfaKind), (2, 1, EfaKind), (3, 1, EfaKind)]);
    }

    #[test]
    fn a_card_0_with_one_interface_carries_address_and_efa_together() {
        let layout = shape(&with_cards(1, vec![card(0, &[Interface, EfaKind, EfaOnly], 1)]), Efa::Auto, Purpose::Gang);
        assert_eq!(layout, [(0, 0, EfaKind)]);
    }

    #[test]
    fn never_more_efa_than_the_type_takes_and_cards_in_any_order() {
        let mut cards: Vec<_> = (0..4).map(|index| card(index, &[Interface, EfaKind, EfaOnly], 4)).collect();
        cards.reverse();
        let layout = shape(&with_cards(2, cards), Efa::Auto, Purpose::Gang);
        assert_eq!(layout, [(0, 0, Interface), (0, 1, EfaOnly), (1, 0, EfaOnly)]);
    }

    #[test]
    fn auto_depends_on_the_purpose_and_never_means_never() {
        let plain = [(0, 0, Interface)];
        assert_eq!(shape(&p5(), Efa::Auto, Purpose::Ordinary), plain);
        assert_eq!(shape(&p5(), Efa::Auto, Purpose::EfaPods).len(), 33);
        assert_eq!(shape(&p5(), Efa::Always, Purpose::Ordinary).len(), 33);
        assert_eq!(shape(&p5(), Efa::Never, Purpose::Gang), plain);
        assert_eq!(shape(&with_cards(0, vec![card(0, &[Interface], 4)]), Efa::Always, Purpose::Gang), plain);
    }

    #[test]
    fn every_interface_carries_the_groups_and_goes_with_the_instance() {
        let groups = ["sg-1".to_owned(), "sg-2".to_owned()];
        let layout = efa_layout(&p5(), Efa::Auto, Purpose::Gang, &groups);
        assert!(layout.iter().all(|nic| nic.security_groups == groups && nic.delete_on_termination));
    }
}
