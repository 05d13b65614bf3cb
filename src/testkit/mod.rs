//! What tests are made of: a clock to turn by hand, the suites, the other side of the wire.

pub mod hand_clock;
