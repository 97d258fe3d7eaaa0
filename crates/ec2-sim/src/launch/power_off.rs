//! What a machine does from within: the unit in its user data that ends one which never becomes a node.
//!
//! User data is not run. The unit is recognised by its name and read for its one number, the seconds after which the machine
//! powers off unless a kubelet on it has registered. What powering off comes to is EC2's part: the template's
//! `InstanceInitiatedShutdownBehavior`, and for spot instances without one a choice.

use base64::Engine as _;
use jiff::SignedDuration;

use crate::choices::{Choices, SpotPowerOff};
use crate::kinds::MarketType;
use crate::protocol::form::Form;

/// The line that starts the unit.
const STARTS: &str = "muster-power-off.service";
/// The line with the seconds.
const LIMIT: &str = "limit=";

/// How long after its start an instance launched so ends itself, if it does not become a node before; `None`: it goes on.
pub(crate) fn ends_itself_after(choices: &Choices, data: &Form, capacity_type: MarketType) -> Option<SignedDuration> {
    let after = limit(data.get("UserData")?)?;
    let ends = match (data.get("InstanceInitiatedShutdownBehavior"), capacity_type) {
        (Some(named), _) => named == "terminate",
        (None, MarketType::Spot) => choices.spot_power_off == SpotPowerOff::Terminates,
        // EC2's default is `stop`, which is not played: such an instance goes on, as the worst it could do.
        (None, MarketType::OnDemand | MarketType::CapacityBlock | MarketType::InterruptibleReservation) => false,
    };
    ends.then_some(after)
}

/// The seconds of the unit in base64 user data.
fn limit(user_data: &str) -> Option<SignedDuration> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(user_data).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix(LIMIT))?.trim().parse().ok()?;
    text.contains(STARTS).then(|| SignedDuration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> String {
        base64::engine::general_purpose::STANDARD.encode(text)
    }

    #[test]
    fn the_seconds_of_the_unit_are_read_and_nothing_else_ends_a_machine() {
        let whole = encoded("#!/bin/bash\nlimit=1140\nsystemctl enable --now --no-block muster-power-off.service\n");
        assert_eq!(limit(&whole), Some(SignedDuration::from_secs(1140)));
        for other in
            ["limit=1140\n", "systemctl enable muster-power-off.service\n", "limit=x\nmuster-power-off.service"]
        {
            assert_eq!(limit(&encoded(other)), None, "{other}");
        }
        assert_eq!(limit("no base64"), None);
    }

    #[test]
    fn a_shutdown_ends_an_instance_if_its_template_says_so_and_one_of_spot_by_choice() {
        let unit = encoded("limit=60\nsystemctl enable muster-power-off.service\n");
        let ends = |behavior: Option<&str>, capacity_type, spot_power_off| {
            let mut data = Form::default();
            data.insert("UserData", &unit);
            if let Some(behavior) = behavior {
                data.insert("InstanceInitiatedShutdownBehavior", behavior);
            }
            let choices = Choices { spot_power_off, ..Choices::default() };
            ends_itself_after(&choices, &data, capacity_type).is_some()
        };
        for choice in [SpotPowerOff::Terminates, SpotPowerOff::Stops] {
            assert!(ends(Some("terminate"), MarketType::OnDemand, choice));
            assert!(ends(Some("terminate"), MarketType::Spot, choice));
            assert!(!ends(Some("stop"), MarketType::Spot, choice));
            assert!(!ends(None, MarketType::OnDemand, choice), "EC2's default is to stop");
            assert_eq!(ends(None, MarketType::Spot, choice), choice == SpotPowerOff::Terminates);
        }
    }
}
