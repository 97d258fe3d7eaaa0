//! A writer for the small part of XML that the service speaks: elements and text.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// A document, or a part of one, being written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Xml(String);

impl Xml {
    /// A part without a declaration.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A whole document.
    pub(crate) fn document() -> Self {
        Self("<?xml version=\"1.0\" encoding=\"UTF-8\"?>".to_owned())
    }

    /// The answer of an EC2 operation around its members.
    pub(crate) fn ec2_response(operation: &str, request_id: &str, members: &Self) -> String {
        let mut xml = Self::document();
        xml.0.push_str(&format_open(operation, EC2_NAMESPACE));
        xml.text("requestId", request_id);
        xml.0.push_str(&members.0);
        xml.close(&format!("{operation}Response"));
        xml.0
    }

    /// The answer of a plain query operation around the members of its result.
    pub(crate) fn query_response(operation: &str, namespace: &str, request_id: &str, members: &Self) -> String {
        let mut xml = Self::document();
        xml.0.push_str(&format_open(operation, namespace));
        xml.node(&format!("{operation}Result"), |xml| xml.0.push_str(&members.0));
        xml.node("ResponseMetadata", |xml| xml.text("RequestId", request_id));
        xml.close(&format!("{operation}Response"));
        xml.0
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }

    /// `<name>value</name>`.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.open(name);
        for c in value.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '\r' => self.0.push_str("&#13;"),
                // What XML 1.0 cannot carry at all would make the client's parser fail.
                c if c < ' ' && c != '\n' && c != '\t' => {}
                c => self.0.push(c),
            }
        }
        self.close(name);
    }

    /// The element, if there is a value.
    pub(crate) fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    pub(crate) fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        self.text(name, &value.to_string());
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        self.text(name, if value { "true" } else { "false" });
    }

    /// An instant with milliseconds, as the service writes it.
    pub(crate) fn time(&mut self, name: &str, value: Timestamp) {
        self.text(name, &format!("{value:.3}"));
    }

    /// `<name>…</name>`.
    pub(crate) fn node(&mut self, name: &str, members: impl FnOnce(&mut Self)) {
        self.open(name);
        members(self);
        self.close(name);
    }

    /// `<name><item>…</item>…</name>`, or `<name/>` when there are none.
    pub(crate) fn list<I: IntoIterator>(&mut self, name: &str, items: I, mut write: impl FnMut(&mut Self, I::Item)) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            self.0.push('<');
            self.0.push_str(name);
            self.0.push_str("/>");
            return;
        }
        self.open(name);
        for item in items {
            self.node("item", |xml| write(xml, item));
        }
        self.close(name);
    }

    /// A list of plain values.
    pub(crate) fn values<'a>(&mut self, name: &str, values: impl IntoIterator<Item = &'a str>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            self.list(name, std::iter::empty::<()>(), |_, ()| {});
            return;
        }
        self.open(name);
        for value in values {
            self.text("item", value);
        }
        self.close(name);
    }

    /// A `tagSet`.
    pub(crate) fn tags(&mut self, tags: &BTreeMap<String, String>) {
        self.list("tagSet", tags, |xml, (key, value)| {
            xml.text("key", key);
            xml.text("value", value);
        });
    }

    fn open(&mut self, name: &str) {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push('>');
    }

    fn close(&mut self, name: &str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }
}

const EC2_NAMESPACE: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";

fn format_open(operation: &str, namespace: &str) -> String {
    format!("<{operation}Response xmlns=\"{namespace}\">")
}
