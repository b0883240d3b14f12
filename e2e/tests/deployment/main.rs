//! A whole deployment under paused time: one that an earlier version wrote and this one opens, and one that is recounted
//! while views of a post pour in.

#[cfg(test)]
mod before;
#[cfg(test)]
mod opened;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod stack;
#[cfg(test)]
mod views;
