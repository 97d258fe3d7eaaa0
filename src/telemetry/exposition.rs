//! OpenMetrics as the registry writes it, and the plain text of Prometheus 0.0.4 for scrapers that do not accept it.

/// Content type of OpenMetrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the plain text.
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a scraper takes OpenMetrics, by its `Accept` header.
#[must_use]
pub fn takes_open_metrics(accept: Option<&str>) -> bool {
    let refused = |parameter: &str| matches!(parameter.trim(), "q=0" | "q=0.0");
    accept.into_iter().flat_map(|accept| accept.split(',')).any(|one| {
        let mut parts = one.split(';');
        let media = parts.next().unwrap_or_default().trim();
        media.eq_ignore_ascii_case("application/openmetrics-text") && !parts.any(refused)
    })
}

/// The same samples as plain text. There a counter's family has the name of its samples, units and the end are comments that
/// nobody reads, and there is no exemplar, which the registry writes none of.
#[must_use]
pub fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help: Option<(&str, &str)> = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else { continue };
            let end = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            if let Some((of, words)) = help.take().filter(|(of, _)| *of == name) {
                text.push_str("# HELP ");
                text.push_str(of);
                text.push_str(end);
                text.push(' ');
                // The plain text knows no escaped quotes in help.
                text.push_str(&words.replace("\\\"", "\""));
                text.push('\n');
            }
            for part in ["# TYPE ", name, end, " ", kind, "\n"] {
                text.push_str(part);
            }
        } else if !line.starts_with('#') && !line.is_empty() {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_the_name_of_its_samples_and_nothing_is_left_of_units_and_end() {
        let open = "# HELP a_usd Dollars.\n# TYPE a_usd counter\n# UNIT a_usd usd\na_usd_total{cause=\"x\"} 1.5\n\
                    # HELP b Things.\n# TYPE b gauge\nb 2\n\
                    # HELP c_seconds Time.\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\nc_seconds_sum 1.0\nc_seconds_count 1\n\
                    c_seconds_bucket{le=\"+Inf\"} 1\n# EOF\n";
        assert_eq!(
            plain(open),
            "# HELP a_usd_total Dollars.\n# TYPE a_usd_total counter\na_usd_total{cause=\"x\"} 1.5\n\
             # HELP b Things.\n# TYPE b gauge\nb 2\n\
             # HELP c_seconds Time.\n# TYPE c_seconds histogram\nc_seconds_sum 1.0\nc_seconds_count 1\n\
             c_seconds_bucket{le=\"+Inf\"} 1\n"
        );
    }

    #[test]
    fn who_does_not_accept_open_metrics_gets_plain_text() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert!(takes_open_metrics(Some(prometheus)));
        assert!(!takes_open_metrics(Some("text/plain, application/openmetrics-text;q=0")));
        assert!(!takes_open_metrics(Some("*/*")));
        assert!(!takes_open_metrics(None));
    }
}
