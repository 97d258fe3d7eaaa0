//! The ec2Query protocol: form bodies in, XML out.

pub(crate) mod error;
pub(crate) mod form;
pub(crate) mod md5;
pub(crate) mod request;
pub(crate) mod wild;
pub(crate) mod xml;
