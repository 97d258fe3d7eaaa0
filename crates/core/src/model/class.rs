//! The version of the digests that classes of pods have, which stand in NodeBatches and outlive the process that wrote them.

/// What every digest of a class begins with. Another way to write a shape down is another version.
pub(crate) const CLASS_VERSION: &str = "3-";

/// Whether a class was written by a version that makes its digests as this one does. Of another nobody here can say which pods it
/// has.
pub(crate) fn is_readable(class: &str) -> bool {
    class.starts_with(CLASS_VERSION)
}
