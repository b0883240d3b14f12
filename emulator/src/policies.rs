//! Refuses requests that the policies of a role do not allow, so that tests find permissions that are missing. The
//! roles are those of a CloudFormation template ([`template`] reads it), the access key of a request names its role,
//! and [`needs`] finds the permissions that a request needs.

mod needs;
mod template;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{Request, header};

use self::needs::Need;
pub(crate) use self::needs::of as needs_of;
use crate::error::{Error, Kind};

/// The access key that may do everything, like that of an account's root user, for creating tables and for checks.
const ROOT: &str = "root";

/// The roles of a template by name, with their grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies(BTreeMap<String, Vec<Grant>>);

/// One action on one resource. Both may contain `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    action: String,
    resource: String,
}

/// The statements of a batch that are not allowed, by position.
pub(crate) type Denied = Vec<(usize, Error)>;

/// Statistics about requests under policies: the grants that were used, and the refused actions with their numbers.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    used: BTreeSet<(String, usize)>,
    pub(crate) refused: BTreeMap<String, u64>,
}

impl Policies {
    /// Admits a request, or refuses it as DynamoDB does. The refused statements of a batch are returned.
    pub(crate) fn admit(&self, request: &Request<Bytes>, region: &str, uses: &mut Uses) -> Result<Denied, Error> {
        // A request without a signature is refused elsewhere.
        if !request.headers().contains_key(header::AUTHORIZATION) {
            return Ok(Denied::new());
        }
        let key = access_key(request).unwrap_or_default();
        if key == ROOT {
            return Ok(Denied::new());
        }
        let Some(grants) = self.0.get(key) else {
            let unknown = "The security token included in the request is invalid.";
            return Err(Error::new(Kind::UnrecognizedClient, unknown));
        };
        let needs = needs::of(request, region);
        let by: Vec<Option<usize>> =
            needs.iter().map(|need| grants.iter().position(|grant| grant.covers(need))).collect();
        let mut denied = Denied::new();
        for (need, _) in needs.iter().zip(&by).filter(|(_, by)| by.is_none()) {
            *uses.refused.entry(format!("{key}: {} on {}", need.action, short(&need.resource))).or_default() += 1;
            let error = Error::new(Kind::AccessDenied, need.denied_to(key));
            let Some(statement) = need.statement else { return Err(error) };
            denied.push((statement, error));
        }
        uses.used.extend(by.into_iter().flatten().map(|nth| (key.to_owned(), nth)));
        Ok(denied)
    }

    /// The grants that no request has used so far.
    pub(crate) fn unused(&self, uses: &Uses) -> Vec<String> {
        let all = self
            .0
            .iter()
            .flat_map(|(role, grants)| grants.iter().enumerate().map(move |(nth, grant)| (role, nth, grant)));
        all.filter(|(role, nth, _)| !uses.used.contains(&((*role).clone(), *nth)))
            .map(|(role, _, grant)| format!("{role}: {} on {}", grant.action, short(&grant.resource)))
            .collect()
    }
}

impl Grant {
    fn covers(&self, need: &Need) -> bool {
        matches(self.action.as_bytes(), need.action.as_bytes())
            && matches(self.resource.as_bytes(), need.resource.as_bytes())
    }
}

impl Need {
    fn denied_to(&self, role: &str) -> String {
        let Self { action, resource, .. } = self;
        format!(
            "User: arn:aws:sts::000000000000:assumed-role/{role}/local is not authorized to perform: {action} on resource: \
             {resource} because no identity-based policy allows the {action} action"
        )
    }
}

/// An ARN without the common prefix.
fn short(resource: &str) -> &str {
    resource.split_once(":table/").map_or(resource, |(_, table)| table)
}

fn access_key(request: &Request<Bytes>) -> Option<&str> {
    let header = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (_, credential) = header.split_once("Credential=")?;
    credential.split(['/', ',']).next()
}

/// Whether a text matches a pattern, in which `*` stands for any text and `?` for any character. Both are ASCII.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| matches(rest, &text[taken..])),
        ([expected, rest @ ..], [found, left @ ..]) => (*expected == b'?' || expected == found) && matches(rest, left),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text_and_a_question_mark_any_character() {
        for (pattern, text) in [
            ("*", ""),
            ("*likes", "likes"),
            ("*likes", "t-likes-likes"),
            ("table/*likes/stream/*", "table/t-likes/stream/2026"),
            ("a?c", "abc"),
            ("*a*b*", "xaybz"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "b"), ("", "a"), ("*likes", "like_counts"), ("*likes", "likes/stream/x"), ("a?c", "ac")]
        {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
