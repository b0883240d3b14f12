//! How many files, connections among them, this process may have open at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files as far as this process may, and tells it; `None` is no limit.
///
/// The lower of the system's two limits is there for programs that still use `select`; none of Tally's does.
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
    fn the_limit_is_as_high_as_it_may_be() {
        let limit = open_files();
        assert_eq!(limit, getrlimit(Resource::Nofile).maximum);
        assert_eq!(open_files(), limit);
    }
}
