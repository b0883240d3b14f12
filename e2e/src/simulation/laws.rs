//! What must be true: at every look, in every answer, when all is quiet, and of every write of a counter.

mod honest;
mod listed;
mod quiet;
mod steps;

pub(crate) use honest::{Answer, Count, Honesty};
pub(crate) use listed::listed;
pub(crate) use quiet::{Quiet, exact, held, said, weights};
pub(crate) use steps::Steps;
