//! The program `hapax`: its config file, its command line, and which store it opens.

pub mod config;

pub mod open;

pub mod bench;

pub mod demo;

pub mod cli;

#[cfg(test)]
mod api_tests;
