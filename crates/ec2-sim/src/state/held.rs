//! Launches that are carried out later than they came.

use jiff::Timestamp;

use crate::faults::Drawn;
use crate::protocol::request::Request;

/// A launch that is carried out later than it came.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) request: Request,
    /// The faults that hit the call when it came.
    pub(crate) drawn: Drawn,
    /// None: when a newer launch of the batch has been carried out.
    pub(crate) due: Option<Timestamp>,
    pub(crate) batch: Option<String>,
    /// Its entry in the journal.
    pub(crate) number: u64,
}
