//! The operators' command as a process of its own, over the emulator on a loopback port and librdkafka's in-process cluster.

#[cfg(test)]
mod adopting;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod posts;
#[cfg(test)]
mod recounting;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod regions;
#[cfg(test)]
mod restoring;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod status;
#[cfg(test)]
mod topics;
#[cfg(test)]
mod verifying;
