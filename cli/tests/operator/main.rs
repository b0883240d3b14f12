//! Runs `tally` as a process, verb by verb, over the emulator of DynamoDB and librdkafka's in-process cluster. `stage`
//! sets them up.

#[cfg(test)]
mod adopting;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod posts;
#[cfg(test)]
mod preparing;
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
