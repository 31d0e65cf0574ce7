//! The palisade binary.
fn main() {}
