//! Promises: whenever the power fails while the log of a volume moves, exactly one log counts, on whichever
//! disk, and the volume has with it all that was durable.

use crate::moves;

use moves::crashes_while_it_moves;
use yore_fs::Engine;

#[test]
fn one_log_counts_at_each_instant() {
    for engine in [Engine::Snapshot, Engine::Journal] {
        let states = crashes_while_it_moves(engine);
        println!("{engine:?}: {states} states");
        assert!(states > 300, "only {states} states");
    }
}
