//! What tests are made of.

#[cfg(test)]
mod provider_suite;
