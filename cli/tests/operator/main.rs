//! Runs `tally` as a process, verb by verb, over DynamoDB's emulator and librdkafka's in-process cluster (`stage`).

#[cfg(test)]
mod adopting;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod letters;
#[cfg(test)]
mod moving;
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
