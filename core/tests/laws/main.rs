//! The laws of the core: exhaustive models of its real decision functions, and properties of its pure parts.

#[cfg(test)]
mod explore;
#[cfg(test)]
mod intern;
#[cfg(test)]
mod models;
#[cfg(test)]
mod properties;
