//! What can be had: instance types, prices, what is unavailable, and the order in which candidates are tried.

pub(crate) mod exclusion;
pub(crate) mod learned;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod node;
pub(crate) mod price;
pub(crate) mod rank;
pub(crate) mod refusals;
pub(crate) mod requirements;
pub(crate) mod unavailable;

pub use crate::ec2::machine::{AMD_GPU, EFA, Gpu, InstanceTypeInfo, NEURON, NVIDIA_GPU, NetworkCard, UsageClass};
pub use crate::model::launch::Pool;
pub use exclusion::{Exclusion, MAX_CANDIDATES};
pub use learned::{Build, memory_known, memory_seen};
pub use ledger::{
    Addresses, Amounts, Ceiling, CeilingLeft, CeilingScope, Claim, Hosts, Launch, Ledger, LedgerInputs, PoolLimits,
    Standing,
};
pub use limits::{NODES, UnknownLimit, counted, unknown_limit};
pub use node::{ClassTemplate, InterfaceSlot, NewNode, NodeTemplate, new_node};
pub use price::{
    Change, Override, PRICES_AS_OF, PriceBook, PriceList, micro_dollars, on_demand_price, price_list_region,
    prices_as_of,
};
pub use rank::{
    Candidate, Excluded, GroupPolicy, MinValues, Need, PoolOffer, PoolType, RankInput, Ranked, Ranking, Rung, not_open,
    rank_candidates,
};
pub use refusals::{Asked, QUOTA_SECONDS, Quota, Refusal, Refusals};
pub use requirements::{Requirements, Values};
pub use unavailable::{ICE_AGAIN_SECONDS, ICE_FIRST_SECONDS, UnavailableMemory};
