//! Any bytes at the Redis door.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hapax_gateway::resp::fuzz::resp(input));
