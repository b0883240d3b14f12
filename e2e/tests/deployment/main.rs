//! A whole deployment under paused time, recounted while views of a post pour in.

#[cfg(test)]
mod raw;
#[cfg(test)]
mod stack;
#[cfg(test)]
mod views;
