//! User data that is a MIME document already: its parts, in order.

/// A part as it was written, with other line ends at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Header lines.
    pub(super) head: Vec<String>,
    /// What follows the blank line.
    pub(super) body: String,
}

impl Part {
    /// Whether a header line names what the part is. Without one nodeadm ends, and with it every node.
    pub(super) fn is_typed(&self) -> bool {
        self.head.iter().any(|line| field(line, "content-type").is_some())
    }
}

/// Whether somebody meant it as MIME.
pub(super) fn is_mime(text: &str) -> bool {
    text.lines().next().is_some_and(|line| {
        field(line, "mime-version").is_some() || field(line, "content-type").is_some_and(is_multipart)
    })
}

/// The parts of a multipart document, empty ones aside; `None` if it is none, does not end, or has no part.
pub(super) fn parts(text: &str) -> Option<Vec<Part>> {
    let mut lines = text.lines();
    let head = head(&mut lines);
    let boundary = boundary(&head)?;
    let (between, last) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts: Vec<Vec<&str>> = Vec::new();
    let mut ended = false;
    for line in lines {
        if line.trim_end() == last {
            ended = true;
            break;
        } else if line.trim_end() == between {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            // What stands before the first part is for readers that do not know MIME.
            part.push(line);
        }
    }
    let parts: Vec<Part> = parts.into_iter().map(part).filter(|part| !part.body.trim().is_empty()).collect();
    (ended && !parts.is_empty()).then_some(parts)
}

fn part(lines: Vec<&str>) -> Part {
    let mut lines = lines.into_iter();
    let head = head(&mut lines);
    Part { head, body: lines.collect::<Vec<_>>().join("\n") }
}

/// Header lines up to the blank one; a line that begins with a blank belongs to the one above.
fn head<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut head: Vec<String> = Vec::new();
    for line in lines.take_while(|line| !line.trim().is_empty()) {
        match head.last_mut() {
            Some(above) if line.starts_with([' ', '\t']) => {
                above.push(' ');
                above.push_str(line.trim());
            }
            Some(_) | None => head.push(line.trim_end().to_owned()),
        }
    }
    head
}

/// The value of a header line, if it is the one of this name.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = line.split_once(':')?;
    key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
}

fn is_multipart(value: &str) -> bool {
    value.get(..10).is_some_and(|start| start.eq_ignore_ascii_case("multipart/"))
}

fn boundary(head: &[String]) -> Option<&str> {
    let value = head.iter().find_map(|line| field(line, "content-type")).filter(|value| is_multipart(value))?;
    let parameter = value.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case("boundary").then(|| value.trim())
    })?;
    let bare = parameter.trim_matches('"');
    (!bare.is_empty()).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed;\r\n boundary=\"BOUNDARY\"\r\n\r\nfor others\r\n\
        --BOUNDARY\r\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\r\n\r\n#!/bin/sh\r\necho a: b\r\n\r\n--BOUNDARY\r\n\
        content-type: application/node.eks.aws\r\n\r\nkind: NodeConfig\r\n--BOUNDARY--\r\nafter\r\n";

    #[test]
    fn parts_keep_their_order_their_headers_and_every_line() {
        assert!(is_mime(TWO));
        let found = parts(TWO).unwrap();
        assert_eq!(found[0].head, ["Content-Type: text/x-shellscript; charset=\"us-ascii\""]);
        assert_eq!(found[0].body, "#!/bin/sh\necho a: b\n");
        assert_eq!((found[1].head.len(), found[1].body.as_str()), (1, "kind: NodeConfig"));
        assert!(found.iter().all(Part::is_typed));
    }

    #[test]
    fn a_boundary_needs_no_quotes_and_an_empty_part_is_none() {
        let text = "Content-Type: multipart/mixed; charset=x; boundary=//\n\n--//\nContent-Type: a/b\n\n\n--//\n\nplain\n--//--\n";
        assert!(is_mime(text));
        let found = parts(text).unwrap();
        assert_eq!((found.len(), found[0].body.as_str(), found[0].is_typed()), (1, "plain", false));
    }

    #[test]
    fn what_is_no_whole_document_has_no_parts() {
        for text in [
            "",
            "MIME-Version: 1.0\n\n--a\n\nx\n--a--\n",
            "Content-Type: text/plain\n\nx",
            "Content-Type: multipart/mixed; boundary=\"\"\n\n--\n\nx\n----\n",
            "Content-Type: multipart/mixed; boundary=a\n\n--a\n\ncut off",
            "Content-Type: multipart/mixed; boundary=a\n\n--a--\n",
        ] {
            assert_eq!(parts(text), None, "{text:?}");
        }
        assert!(!is_mime("#!/bin/sh\nMIME-Version: 1.0"));
        assert!(!is_mime("Content-Type: text/plain"));
    }
}
