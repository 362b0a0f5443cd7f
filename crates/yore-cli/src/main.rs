//! The `yore` command.
fn main() {}
