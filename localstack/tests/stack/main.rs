//! The local stack from outside: the page's routes over a stack that is made up, a real browser over the whole pipeline, and
//! the one command as a process of its own.

#[cfg(test)]
mod browser;
#[cfg(test)]
mod double;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod routes;
