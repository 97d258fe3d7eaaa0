//! The ec2Query protocol: form bodies in, XML out.

pub(crate) mod error;
pub(crate) mod form;
pub(crate) mod xml;
