//! What is trending: the lists held against every change there was, and the service that makes them.

#[cfg(test)]
mod lists;
#[cfg(test)]
mod service;
