//! Which random sequences a test runs.

/// `YORE_ROUNDS` sequences from `YORE_SEED` on, or else `rounds` from 1 on. Each prints how to run it again.
pub fn seeds(rounds: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str, otherwise: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => otherwise,
    };
    let first = number("YORE_SEED", 1);
    (first..first + number("YORE_ROUNDS", rounds)).inspect(|seed| println!("YORE_SEED={seed}"))
}
