//! Lists of what is trending.

#[cfg(test)]
mod laws;
