//! The strict reference model.
