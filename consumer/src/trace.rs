//! Links traces of the consumer with those of producers: the span of a request to the store names the spans that its
//! records come from, as their W3C header `traceparent` has them.

use tally_core::ports::log::Record;

/// How many links one batch keeps; the rest are counted.
const MAX_LINKS: usize = 16;

/// Returns the spans that a batch's records came from, as `trace-span` pairs of hexadecimal ids.
pub(crate) fn links<'a>(records: impl Iterator<Item = Record<'a>>) -> String {
    let (mut kept, mut more) = (Vec::new(), 0);
    for link in records.filter_map(|record| record.header("traceparent").and_then(parse)) {
        if kept.contains(&link) {
            continue;
        }
        if kept.len() < MAX_LINKS { kept.push(link) } else { more += 1 }
    }
    let kept = kept.join(" ");
    if more > 0 { format!("{kept} and {more} more") } else { kept }
}

/// Reads `version-trace-parent-flags`, all in lower-case hexadecimal; ids of zeros are none.
fn parse(header: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(header).ok()?;
    let mut fields = text.split('-');
    let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let hex = |text: &str, len| text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let known = hex(version, 2) && version != "ff" && hex(flags, 2) && (version != "00" || fields.next().is_none());
    let id = |text: &str, len| hex(text, len) && text.bytes().any(|b| b != b'0');
    (known && id(trace, 32) && id(span, 16)).then(|| format!("{trace}-{span}"))
}

#[cfg(test)]
mod tests {
    use tally_core::ports::log::Records;
    use tally_core::time::UnixMillis;
    use tally_core::topic::Offset;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_a_well_formed_parent_is_followed() {
        assert_eq!(parse(PARENT.as_bytes()).unwrap(), "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7");
        let future = format!("01{}-extra", &PARENT[2..]);
        assert!(parse(future.as_bytes()).is_some(), "a later version may have more fields");
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let upper = PARENT.to_uppercase();
        for bad in ["", "00", zeros, &upper, &PARENT[..54], &format!("{PARENT}-x"), &format!("ff{}", &PARENT[2..])] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse(b"\xff"), None);
    }

    #[test]
    fn a_batch_keeps_some_links_and_counts_the_rest() {
        let mut records = Records::default();
        for n in 0..40 {
            let parent = format!("00-{:032x}-{:016x}-01", n / 2 + 1, 1);
            records.push(Offset(n), UnixMillis(0), None, None, [("traceparent", Some(parent.as_bytes()))]);
        }
        let said = links(records.iter());
        assert_eq!(said.matches('-').count(), MAX_LINKS, "{said}");
        assert!(said.ends_with(" and 8 more"), "{said}");
    }
}
