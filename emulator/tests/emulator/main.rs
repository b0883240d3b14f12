//! The emulator from outside: JSON in and JSON out, the real SDKs, and its program, held against what DynamoDB is known to do.

#[cfg(test)]
mod binary;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod hot_keys;
#[cfg(test)]
mod latency;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod malformed;
#[cfg(test)]
mod partiql;
#[cfg(test)]
mod partiql_laws;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod python_clients;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod reader;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod restoring;
#[cfg(test)]
mod sdk;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod updates;
