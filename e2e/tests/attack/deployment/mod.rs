//! A whole deployment under paused time: one that an earlier version wrote and this one opens, and one that is recounted
//! while views of a post pour in.

mod before;
mod opened;
mod raw;
mod stack;
mod views;
