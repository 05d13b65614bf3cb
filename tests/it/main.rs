//! The one integration binary.

mod stores;
