//! Dollars that are counted for ever: what batches cost that are gone, kept with their NodePool.
//!
//! A bill is booked between two writes that may each be the last of a process: the books are written, then the object is
//! deleted. So the books name whom they have. A name may go once its object is gone, since a UID never comes back; and whoever
//! books looks whether the object exists *after* it has read the books, and writes on condition that nobody wrote since. Then
//! each bill is in them exactly once, whoever else books, dies or tries again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::bill;
use crate::model::batch::{Batch, Share};
use crate::model::launch::CapacityType;

/// Rows of one pool; what comes later counts as [`OTHER`].
pub const ROWS: usize = 50;
/// The namespace of a row for all that have none of their own.
pub const OTHER: &str = "other";
/// The namespace of nodes for pods of no gang, which several namespaces share. No namespace is called so.
pub const SHARED: &str = "-";

/// How far running bills lag behind: what is written within this time never makes a sum smaller that was shown already.
pub const LAG: SignedDuration = SignedDuration::from_mins(1);

/// Who spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Payer {
    /// Namespace of the gang or ProvisioningRequest, [`SHARED`] or [`OTHER`].
    pub namespace: String,
    /// Capacity type; `unknown` where it is not known.
    pub capacity_type: String,
}

/// Micro-dollars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// All.
    pub all: u64,
    /// Of it, while no gang ran on the nodes, by cause.
    pub stranded: BTreeMap<String, u64>,
}

impl Spent {
    /// Adds up.
    pub fn add(&mut self, more: &Self) {
        self.all = self.all.saturating_add(more.all);
        for (cause, more) in &more.stranded {
            let sum = self.stranded.entry(cause.clone()).or_default();
            *sum = sum.saturating_add(*more);
        }
    }
}

/// What a NodePool has spent on batches that are gone, or about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Sums.
    pub rows: BTreeMap<Payer, Spent>,
    /// UIDs of batches that are in the sums and may still exist.
    pub booked: BTreeSet<String>,
}

/// What booking a bill comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Booking {
    /// It is in the books, or there is nothing to book.
    Done,
    /// The books as they are to be written, if nobody has written since they were read.
    Write(Books),
    /// The bill is not closed: it may still grow.
    Open,
}

/// Books what a batch cost of one pool. `exist`: UIDs of all batches, read after the books.
#[must_use]
pub fn book(books: &Books, pool: &str, batch: &Batch, exist: &BTreeSet<String>) -> Booking {
    // Whoever deleted it has booked it.
    if !exist.contains(&batch.uid) || books.booked.contains(&batch.uid) {
        return Booking::Done;
    }
    if !batch.status.billing.as_ref().is_some_and(|billing| billing.closed) {
        return Booking::Open;
    }
    let mut next = books.clone();
    let mut any = false;
    for share in bill::shares(&batch.status, None).iter().filter(|share| share.node_pool == pool && share.spent > 0) {
        let mut payer = payer(batch, share);
        if !next.rows.contains_key(&payer) && next.rows.len() >= ROWS {
            OTHER.clone_into(&mut payer.namespace);
        }
        next.rows.entry(payer).or_default().add(&spent(share));
        any = true;
    }
    if !any {
        return Booking::Done;
    }
    next.booked.retain(|uid| exist.contains(uid));
    next.booked.insert(batch.uid.clone());
    Booking::Write(next)
}

fn payer(batch: &Batch, share: &Share) -> Payer {
    let owner = batch.spec.owner.object();
    Payer {
        namespace: owner.map_or_else(|| SHARED.to_owned(), |owner| owner.key.namespace.to_string()),
        capacity_type: share.capacity_type.map_or("unknown", CapacityType::as_str).to_owned(),
    }
}

fn spent(share: &Share) -> Spent {
    let stranded = share.stranded.iter().map(|(cause, sum)| (cause.as_str().to_owned(), *sum));
    Spent { all: share.spent, stranded: stranded.collect() }
}

/// Everything that was ever spent, by pool and payer: what is booked, and on top the bills of batches that are not, which run
/// until [`LAG`] before `now`. A batch that has spent nothing yet is there with nothing.
#[must_use]
pub fn spent_so_far<'a>(
    books: &BTreeMap<&'a str, Books>,
    batches: impl Iterator<Item = &'a Batch>,
    now: Timestamp,
) -> BTreeMap<(String, Payer), Spent> {
    let until = now.saturating_sub(LAG).unwrap_or(Timestamp::MIN);
    let mut sums: BTreeMap<(String, Payer), Spent> = BTreeMap::new();
    for (pool, books) in books {
        for (payer, spent) in &books.rows {
            sums.entry(((*pool).to_owned(), payer.clone())).or_default().add(spent);
        }
    }
    for batch in batches {
        for share in bill::shares(&batch.status, Some(until)) {
            let of = books.get(share.node_pool.as_str());
            if of.is_some_and(|books| books.booked.contains(&batch.uid)) {
                continue;
            }
            let mut payer = payer(batch, &share);
            if of.is_some_and(|books| !books.rows.contains_key(&payer) && books.rows.len() >= ROWS) {
                OTHER.clone_into(&mut payer.namespace);
            }
            sums.entry((share.node_pool.clone(), payer)).or_default().add(&spent(&share));
        }
    }
    sums
}
