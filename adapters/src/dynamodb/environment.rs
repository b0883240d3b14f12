//! Checks the standard AWS variables when a process starts, without asking over a network. The SDK ignores some
//! mistakes in them silently, and finds the others at the first request. Also finds out from the answer or the silence
//! of the instance's own service whether to wait for its credentials.

use std::error::Error;
use std::iter::successors;

use aws_config::imds::client::error::{ImdsError, TokenError};
use aws_config::meta::ProviderChainError;
use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
use http::Uri;
use tally_service::Invalid;

/// The variables that name another endpoint than the Region's own.
const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"];

/// The variables that say that credentials come from elsewhere than from variables.
const OTHER_CREDENTIALS: [&str; 5] = [
    "AWS_PROFILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
];

/// Returns what is wrong with this process's AWS variables.
pub fn environment() -> Invalid {
    let home = std::env::home_dir().map(|home| home.join(".aws"));
    let profiles = home.is_some_and(|folder| folder.join("credentials").exists() || folder.join("config").exists());
    problems(|name| std::env::var(name).ok(), region_of_profile(), profiles)
}

/// Returns whether a profile names a region.
fn region_of_profile() -> bool {
    use aws_config::meta::region::ProvideRegion as _;
    use futures_util::FutureExt as _;

    // Profiles are files, so this never waits.
    aws_config::profile::region::ProfileFileRegionProvider::new().region().now_or_never().flatten().is_some()
}

/// Checks any variables, given whether a profile names a region and whether there are profiles at all.
fn problems(get: impl Fn(&str) -> Option<String>, region_of_profile: bool, profiles: bool) -> Invalid {
    let mut invalid = Invalid::none();
    let no_instance = get("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    // The first variable that is set counts, also if it is empty.
    match ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().find_map(|name| Some((name, get(name)?))) {
        Some((name, region)) if !is_region(&region) => {
            invalid.add_variable(name, "not the name of a region, such as eu-west-1");
        }
        None if no_instance && !region_of_profile => {
            invalid.add_variable("AWS_REGION", format!("missing, {NO_PROFILE} names a region"));
        }
        _ => {}
    }
    let given = |name: &str| get(name).is_some_and(|value| !value.is_empty());
    match ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(given) {
        [true, false] => invalid.add_variable("AWS_SECRET_ACCESS_KEY", "missing, while AWS_ACCESS_KEY_ID is given"),
        [false, true] => invalid.add_variable("AWS_ACCESS_KEY_ID", "missing, while AWS_SECRET_ACCESS_KEY is given"),
        [false, false] if no_instance && !profiles && !OTHER_CREDENTIALS.into_iter().any(given) => {
            invalid.add_variable("AWS_ACCESS_KEY_ID", format!("missing, {NO_PROFILE} or role has credentials"));
        }
        _ => {}
    }
    for name in ENDPOINTS {
        if let Some(endpoint) = get(name).filter(|endpoint| !endpoint.is_empty())
            && let Err(problem) = check_endpoint(&endpoint)
        {
            invalid.add_variable(name, problem);
        }
    }
    invalid
}

const NO_PROFILE: &str = "and no profile";

fn is_region(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Checks that `url` is the URL of an engine. The SDK ignores a URL that it cannot use, and asks the real service.
///
/// # Errors
/// What it has to look like.
pub fn check_endpoint(url: &str) -> Result<(), &'static str> {
    let uri = url.parse::<Uri>().ok();
    let is_endpoint = uri.is_some_and(|uri| {
        let address = uri.authority().is_some_and(|authority| {
            let port = authority.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
            !authority.host().is_empty() && authority.as_str() == format!("{}{port}", authority.host()) && port != ":0"
        });
        matches!(uri.scheme_str(), Some("http" | "https")) && address
    });
    if is_endpoint { Ok(()) } else { Err("not a URL such as http://127.0.0.1:8000") }
}

/// Returns whether the instance refuses to give credentials: by its answer, or by taking no connection, as where the
/// service is switched off. Waiting does not mend that. It may mend silence, or an error of the service's own.
pub(super) fn instance_has_none(error: &(dyn Error + 'static)) -> bool {
    found::<ImdsError>(error).is_some_and(refuses)
}

fn refuses(error: &ImdsError) -> bool {
    match error {
        ImdsError::FailedToLoadToken(_) => {
            let asked = error.source().and_then(|cause| cause.downcast_ref::<SdkError<TokenError, HttpResponse>>());
            match asked.and_then(SdkError::raw_response) {
                Some(answer) => answer.status().is_client_error(),
                None => takes_no_connection(error),
            }
        }
        ImdsError::ErrorResponse(context) => context.response().status().is_client_error(),
        _ => false,
    }
}

/// Returns whether credentials are missing because the instance did not answer. A refused connection is an answer.
pub(super) fn instance_is_silent(error: &CredentialsError) -> bool {
    let asked = error.source().and_then(|cause| cause.downcast_ref::<ProviderChainError<CredentialsError>>());
    asked.is_some_and(|chain| {
        chain.attempts().iter().any(|attempt| {
            let unanswered = found::<ConnectorError>(attempt.error()).is_some();
            unanswered && !takes_no_connection(attempt.error())
        })
    })
}

fn takes_no_connection(error: &(dyn Error + 'static)) -> bool {
    found::<std::io::Error>(error).is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// Returns the first cause of an error that has this type.
fn found<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(variables: &[(&str, &str)], profiles: bool) -> String {
        let get = |name: &str| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| (*value).to_owned());
        problems(get, profiles, profiles).to_string()
    }

    const GOOD: [(&str, &str); 3] =
        [("AWS_REGION", "eu-west-1"), ("AWS_ACCESS_KEY_ID", "canary"), ("AWS_SECRET_ACCESS_KEY", "canary")];
    const NO_INSTANCE: (&str, &str) = ("AWS_EC2_METADATA_DISABLED", "true");

    #[test]
    fn what_is_complete_or_may_come_from_elsewhere_is_accepted() {
        assert_eq!(said(&GOOD, false), "");
        assert_eq!(said(&[], false), "", "an instance may know");
        assert_eq!(said(&[NO_INSTANCE], true), "", "a profile knows");
        let role = [NO_INSTANCE, ("AWS_DEFAULT_REGION", "us-gov-east-1"), ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t")];
        assert_eq!(said(&role, false), "");
        assert_eq!(said(&[("AWS_ENDPOINT_URL", "")], false), "", "which is none");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(
            said(&[NO_INSTANCE], false),
            "AWS_REGION: missing, and no profile names a region; \
             AWS_ACCESS_KEY_ID: missing, and no profile or role has credentials"
        );
        assert!(said(&GOOD[..2], false).starts_with("AWS_SECRET_ACCESS_KEY: missing"));
        assert!(said(&[GOOD[0], GOOD[2]], false).starts_with("AWS_ACCESS_KEY_ID: missing"));
        assert!(said(&[("AWS_REGION", "x"), ("AWS_ACCESS_KEY_ID", "canary")], false).contains("AWS_SECRET"));
    }

    #[test]
    fn an_empty_region_and_a_url_that_is_none_are_named_without_any_value() {
        for (name, bad) in [
            ("AWS_REGION", ""),
            ("AWS_DEFAULT_REGION", ""),
            ("AWS_REGION", "eu west"),
            ("AWS_ENDPOINT_URL", "canary"),
            ("AWS_ENDPOINT_URL_DYNAMODB", "http://canary:99999"),
            ("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", "ftp://canary"),
        ] {
            let said = said(&[(name, bad)], false);
            assert!(said.starts_with(&format!("{name}: not ")) && !said.contains("canary"), "{name}={bad}: {said}");
        }
        assert!(said(&[("AWS_REGION", ""), ("AWS_DEFAULT_REGION", "eu-west-1")], false).starts_with("AWS_REGION: not"));
    }

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_perhaps_a_port() {
        for good in ["http://127.0.0.1:8000", "http://[::1]:8000/", "https://dynamodb.eu-west-1.amazonaws.com"] {
            assert_eq!(check_endpoint(good), Ok(()), "{good}");
        }
        for bad in ["", "x", "127.0.0.1:8000", "http://", "http://:8000", "http://h:99999", "http://h:0", "http://h:x"]
        {
            assert!(check_endpoint(bad).is_err(), "{bad}");
        }
        for bad in ["ftp://h", "http://u:p@h:1", "http:// h", "redis://h"] {
            assert!(check_endpoint(bad).is_err(), "{bad}");
        }
    }
}
