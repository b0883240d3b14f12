//! The limit of open files. Connections count as open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit where that is allowed, and returns the limit in force; `None`
/// means unlimited.
///
/// The soft limit exists for programs that use `select`, and none of Tally's does.
pub fn open_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current?;
    let raised = Rlimit { current: maximum, maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() { maximum } else { Some(current) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_maximum() {
        let limit = open_files();
        assert_eq!(limit, getrlimit(Resource::Nofile).maximum);
        assert_eq!(open_files(), limit);
    }
}
