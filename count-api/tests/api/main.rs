//! The API from outside, over HTTP: its routes over the emulator and a real Redis, under load and under attack.

#[cfg(test)]
mod attack;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod counter_writes;
#[cfg(test)]
mod counters;
#[cfg(test)]
mod counts;
#[cfg(test)]
mod create;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod engines;
#[cfg(test)]
mod flight;
#[cfg(test)]
mod format;
#[cfg(test)]
mod gathering;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod hashtags;
#[cfg(test)]
mod headers;
#[cfg(test)]
mod honesty;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod kafka;
#[cfg(test)]
mod live;
#[cfg(test)]
mod milestones;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod pipelined;
#[cfg(test)]
mod process;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod sum_policy;
#[cfg(test)]
mod tombstones;
#[cfg(test)]
mod top;
