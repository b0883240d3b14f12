//! The JSON writer below the operations, which define the shapes of requests and answers.

pub(crate) mod json;
