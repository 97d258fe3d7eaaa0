//! The part of CEL that selectors of devices are mostly written in, evaluated as the API server defines it.
//!
//! Read are: literals, `device.driver`, `device.attributes["domain"].name`, `device.capacity["domain"].name`, lists, `in`,
//! comparisons, `!`, `&&`, `||`, `quantity()` with its comparisons, and `startsWith`, `endsWith` and `contains` of strings. A
//! selector with anything else is refused as a whole: what cannot be evaluated exactly must not be assigned.
//!
//! Source: `CELDeviceSelector` of `resource.k8s.io/v1`, and the CEL language definition for errors in `&&` and `||`.

use std::collections::BTreeMap;

use muster_core::model::units::Quantity;

/// What a selector sees of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Name of the driver.
    pub(super) driver: String,
    /// By domain, then name.
    pub(super) attributes: BTreeMap<String, BTreeMap<String, Value>>,
    /// By domain, then name.
    pub(super) capacity: BTreeMap<String, BTreeMap<String, Value>>,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Bool(bool),
    Int(i64),
    Text(String),
    Amount(Quantity),
    /// A version, of which nothing but its presence is understood.
    Version,
}

/// A selector that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector(Expr);

/// The expression fails for the device, as one does that names an attribute which the device does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fails;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expr {
    Literal(Value),
    List(Vec<Expr>),
    Driver,
    /// `device.attributes`, `device.capacity`.
    Map(Map),
    /// One domain of a map.
    Domain(Map, String),
    /// One entry of a domain.
    Entry(Map, String, String),
    Not(Box<Expr>),
    Both(Box<Expr>, Box<Expr>),
    Either(Box<Expr>, Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    In(Box<Expr>, Box<Expr>),
    Call(Method, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Map {
    Attributes,
    Capacity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    CompareTo,
    IsGreaterThan,
    IsLessThan,
    StartsWith,
    EndsWith,
    Contains,
}

impl Selector {
    /// Reads a selector; `None` if it has anything that is not understood.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
        let expr = parser.either()?;
        (parser.at == parser.tokens.len()).then_some(Self(expr))
    }

    /// Whether the device is selected.
    ///
    /// Errors: see [`Fails`].
    pub(super) fn selects(&self, device: &Seen) -> Result<bool, Fails> {
        truth(&self.0, device)
    }
}

fn truth(expr: &Expr, device: &Seen) -> Result<bool, Fails> {
    match value(expr, device)? {
        Value::Bool(truth) => Ok(truth),
        Value::Int(_) | Value::Text(_) | Value::Amount(_) | Value::Version => Err(Fails),
    }
}

fn value(expr: &Expr, device: &Seen) -> Result<Value, Fails> {
    Ok(match expr {
        Expr::Literal(value) => value.clone(),
        Expr::Driver => Value::Text(device.driver.clone()),
        Expr::List(_) | Expr::Map(_) | Expr::Domain(..) => return Err(Fails),
        Expr::Entry(map, domain, name) => {
            domains(*map, device).get(domain).and_then(|domain| domain.get(name)).cloned().ok_or(Fails)?
        }
        Expr::Not(inner) => Value::Bool(!truth(inner, device)?),
        // One side decides even where the other fails.
        Expr::Both(left, right) => match (truth(left, device), truth(right, device)) {
            (Ok(false), _) | (_, Ok(false)) => Value::Bool(false),
            (left, right) => Value::Bool(left? && right?),
        },
        Expr::Either(left, right) => match (truth(left, device), truth(right, device)) {
            (Ok(true), _) | (_, Ok(true)) => Value::Bool(true),
            (left, right) => Value::Bool(left? || right?),
        },
        Expr::Compare(comparison, left, right) => {
            Value::Bool(compare(*comparison, &value(left, device)?, &value(right, device)?)?)
        }
        Expr::In(element, list) => Value::Bool(contains(element, list, device)?),
        Expr::Call(method, on, argument) => call(*method, &value(on, device)?, &value(argument, device)?)?,
    })
}

fn domains(map: Map, device: &Seen) -> &BTreeMap<String, BTreeMap<String, Value>> {
    match map {
        Map::Attributes => &device.attributes,
        Map::Capacity => &device.capacity,
    }
}

fn contains(element: &Expr, list: &Expr, device: &Seen) -> Result<bool, Fails> {
    let element = value(element, device)?;
    match (list, &element) {
        (Expr::List(entries), _) => {
            let mut found = false;
            for entry in entries {
                found |= value(entry, device)? == element;
            }
            Ok(found)
        }
        (Expr::Map(map), Value::Text(domain)) => Ok(domains(*map, device).contains_key(domain)),
        (Expr::Domain(map, domain), Value::Text(name)) => {
            Ok(domains(*map, device).get(domain).is_some_and(|domain| domain.contains_key(name)))
        }
        (_, _) => Err(Fails),
    }
}

fn compare(comparison: Comparison, left: &Value, right: &Value) -> Result<bool, Fails> {
    let order = match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (_, _) => None,
    };
    let equal = || match (left, right) {
        (Value::Version, _) | (_, Value::Version) => Err(Fails),
        (_, _) => Ok(left == right),
    };
    match comparison {
        Comparison::Equal => equal(),
        Comparison::Unequal => equal().map(|equal| !equal),
        Comparison::Less => order.map(std::cmp::Ordering::is_lt).ok_or(Fails),
        Comparison::AtMost => order.map(std::cmp::Ordering::is_le).ok_or(Fails),
        Comparison::More => order.map(std::cmp::Ordering::is_gt).ok_or(Fails),
        Comparison::AtLeast => order.map(std::cmp::Ordering::is_ge).ok_or(Fails),
    }
}

fn call(method: Method, on: &Value, argument: &Value) -> Result<Value, Fails> {
    Ok(match (method, on, argument) {
        (Method::CompareTo, Value::Amount(on), Value::Amount(argument)) => Value::Int(on.cmp(argument) as i64),
        (Method::IsGreaterThan, Value::Amount(on), Value::Amount(argument)) => Value::Bool(on > argument),
        (Method::IsLessThan, Value::Amount(on), Value::Amount(argument)) => Value::Bool(on < argument),
        (Method::StartsWith, Value::Text(on), Value::Text(argument)) => Value::Bool(on.starts_with(argument.as_str())),
        (Method::EndsWith, Value::Text(on), Value::Text(argument)) => Value::Bool(on.ends_with(argument.as_str())),
        (Method::Contains, Value::Text(on), Value::Text(argument)) => Value::Bool(on.contains(argument.as_str())),
        (_, _, _) => return Err(Fails),
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Int(i64),
    Sign(&'static str),
}

/// Longer signs first.
const SIGNS: [&str; 17] = ["&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", "[", "]", ".", ",", "-", "?"];

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            // A prefix such as that of a raw string.
            if after.starts_with(['"', '\'']) {
                return None;
            }
            tokens.push(Token::Word(word.to_owned()));
            rest = after;
        } else if first.is_ascii_digit() {
            let end = rest.find(|next: char| !next.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (digits, after) = rest.split_at(end);
            tokens.push(Token::Int(digits.parse().ok()?));
            rest = after;
        } else if first == '"' || first == '\'' {
            let inner = &rest[1..];
            let end = inner.find(first)?;
            let (content, after) = inner.split_at(end);
            // Escapes and triple quotes are not read.
            if content.contains(['\\', '\n']) || (content.is_empty() && after[1..].starts_with(first)) {
                return None;
            }
            tokens.push(Token::Text(content.to_owned()));
            rest = &after[1..];
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign))?;
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        }
        rest = rest.trim_start();
    }
    Some(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
}

/// Deeper selectors are not read: the parser calls itself.
const MOST_DEPTH: u32 = 64;

impl Parser {
    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn either(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return None;
        }
        let mut left = self.both()?;
        while self.sign("||") {
            left = Expr::Either(Box::new(left), Box::new(self.both()?));
        }
        self.depth -= 1;
        Some(left)
    }

    fn both(&mut self) -> Option<Expr> {
        let mut left = self.relation()?;
        while self.sign("&&") {
            left = Expr::Both(Box::new(left), Box::new(self.relation()?));
        }
        Some(left)
    }

    fn relation(&mut self) -> Option<Expr> {
        let left = self.unary()?;
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ];
        for (sign, comparison) in comparisons {
            if self.sign(sign) {
                return Some(Expr::Compare(comparison, Box::new(left), Box::new(self.unary()?)));
            }
        }
        if matches!(self.tokens.get(self.at), Some(Token::Word(word)) if word == "in") {
            self.at += 1;
            return Some(Expr::In(Box::new(left), Box::new(self.unary()?)));
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expr> {
        if self.sign("!") {
            self.depth += 1;
            if self.depth > MOST_DEPTH {
                return None;
            }
            let inner = self.unary()?;
            self.depth -= 1;
            return Some(Expr::Not(Box::new(inner)));
        }
        if self.sign("-") {
            let Token::Int(number) = self.next()? else { return None };
            return Some(Expr::Literal(Value::Int(-number)));
        }
        let mut expr = self.primary()?;
        loop {
            if self.sign(".") {
                let Token::Word(name) = self.next()? else { return None };
                expr = self.member(expr, name)?;
            } else if self.sign("[") {
                let Token::Text(key) = self.next()? else { return None };
                if !self.sign("]") {
                    return None;
                }
                expr = match expr {
                    Expr::Map(map) => Expr::Domain(map, key),
                    Expr::Domain(map, domain) => Expr::Entry(map, domain, key),
                    _ => return None,
                };
            } else {
                return Some(expr);
            }
        }
    }

    /// `expr.name`, or a call of that.
    fn member(&mut self, expr: Expr, name: String) -> Option<Expr> {
        if self.sign("(") {
            let method = match name.as_str() {
                "compareTo" => Method::CompareTo,
                "isGreaterThan" => Method::IsGreaterThan,
                "isLessThan" => Method::IsLessThan,
                "startsWith" => Method::StartsWith,
                "endsWith" => Method::EndsWith,
                "contains" => Method::Contains,
                _ => return None,
            };
            let argument = self.either()?;
            return self.sign(")").then(|| Expr::Call(method, Box::new(expr), Box::new(argument)));
        }
        match expr {
            Expr::Domain(map, domain) => Some(Expr::Entry(map, domain, name)),
            _ => None,
        }
    }

    fn primary(&mut self) -> Option<Expr> {
        match self.next()? {
            Token::Int(number) => Some(Expr::Literal(Value::Int(number))),
            Token::Text(text) => Some(Expr::Literal(Value::Text(text))),
            Token::Sign("(") => {
                let inner = self.either()?;
                self.sign(")").then_some(inner)
            }
            Token::Sign("[") => {
                let mut entries = Vec::new();
                while !self.sign("]") {
                    entries.push(self.either()?);
                    if !self.sign(",") {
                        return self.sign("]").then_some(Expr::List(entries));
                    }
                }
                Some(Expr::List(entries))
            }
            Token::Sign(_) => None,
            Token::Word(word) => match word.as_str() {
                "true" => Some(Expr::Literal(Value::Bool(true))),
                "false" => Some(Expr::Literal(Value::Bool(false))),
                "quantity" => {
                    if !self.sign("(") {
                        return None;
                    }
                    let Token::Text(text) = self.next()? else { return None };
                    let amount = text.parse().ok()?;
                    self.sign(")").then_some(Expr::Literal(Value::Amount(amount)))
                }
                "device" => {
                    if !self.sign(".") {
                        return None;
                    }
                    match self.next()? {
                        Token::Word(field) if field == "driver" => Some(Expr::Driver),
                        Token::Word(field) if field == "attributes" => Some(Expr::Map(Map::Attributes)),
                        Token::Word(field) if field == "capacity" => Some(Expr::Map(Map::Capacity)),
                        Token::Word(_) | Token::Text(_) | Token::Int(_) | Token::Sign(_) => None,
                    }
                }
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Seen {
        let attributes = [
            ("type", Value::Text("gpu".to_owned())),
            ("index", Value::Int(3)),
            ("healthy", Value::Bool(true)),
            ("driverVersion", Value::Version),
        ];
        let capacity = [("memory", Value::Amount("80Gi".parse().unwrap()))];
        let owned = |(name, value): (&str, Value)| (name.to_owned(), value);
        Seen {
            driver: "gpu.example.com".to_owned(),
            attributes: [("gpu.example.com".to_owned(), attributes.map(owned).into())].into(),
            capacity: [("gpu.example.com".to_owned(), capacity.map(owned).into())].into(),
        }
    }

    fn outcome(text: &str) -> Option<Result<bool, Fails>> {
        Some(Selector::read(text)?.selects(&device()))
    }

    #[test]
    fn selectors_as_drivers_document_them_are_evaluated() {
        let cases = [
            ("device.driver == 'gpu.example.com'", Ok(true)),
            (r#"device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu""#, Ok(true)),
            (r#"device.attributes["gpu.example.com"]["type"] != "gpu""#, Ok(false)),
            (r#"device.attributes["gpu.example.com"].index in [1, 2, 3]"#, Ok(true)),
            (r#"!(device.attributes["gpu.example.com"].index > 3)"#, Ok(true)),
            (r#"device.attributes["gpu.example.com"].healthy"#, Ok(true)),
            (r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0"#, Ok(true)),
            (r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("80Gi"))"#, Ok(false)),
            (r#""other.example.com" in device.attributes || device.driver.startsWith("gpu.")"#, Ok(true)),
            (r#""type" in device.attributes["gpu.example.com"]"#, Ok(true)),
            ("false || true && false", Ok(false)),
            (r#"device.attributes["gpu.example.com"].index == "3""#, Ok(false)),
        ];
        for (text, expected) in cases {
            assert_eq!(outcome(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_attribute_that_is_missing_fails_unless_the_other_side_decides() {
        let missing = r#"device.attributes["gpu.example.com"].model == "x""#;
        assert_eq!(outcome(missing), Some(Err(Fails)));
        assert_eq!(outcome(&format!("{missing} && device.driver == 'other'")), Some(Ok(false)));
        assert_eq!(outcome(&format!("{missing} || device.driver == 'gpu.example.com'")), Some(Ok(true)));
        assert_eq!(outcome(&format!("!({missing})")), Some(Err(Fails)));
        assert_eq!(outcome(r#"device.attributes["gpu.example.com"].driverVersion == "1.0.0""#), Some(Err(Fails)));
    }

    #[test]
    fn what_is_not_understood_is_refused_as_a_whole() {
        for text in [
            "",
            "device.driver ==",
            r#"device.attributes["a"].b.matches("^x$")"#,
            r#"cel.bind(a, device.attributes["a"], a.b == 1)"#,
            r#"semver("1.0.0").isLessThan(device.attributes["a"].b)"#,
            r#"device.attributes["a"].?b.orValue(1) == 1"#,
            r#"device.driver == r"x""#,
            r#"device.driver == "a\"b""#,
            "device.driver == 'x' ? true : false",
            "device.allowMultipleAllocations",
            "1 + 1 == 2",
        ] {
            assert_eq!(Selector::read(text), None, "{text}");
        }
        assert_eq!(Selector::read(&format!("{}true{}", "(".repeat(500), ")".repeat(500))), None);
        assert_eq!(Selector::read(&format!("{}true", "!".repeat(5000))), None);
    }
}
