//! The volume behaves as the model does: results, attributes and content are the same after every operation.

use yore_crash::campaign::Campaign;
use yore_crash::generate::Profile;
use yore_crash::threads;
use yore_fs::Engine;

/// 200 sequences of 200 operations, with an unmount in the middle and at the end of each, agree with the
/// model.
#[test]
fn sequences_agree_with_the_model() {
    Campaign::comparisons(1, 200, 200, Engine::Snapshot).run().must_be_good();
}

/// The same holds with the engine that promises nothing across crashes: results do not depend on the engine,
/// and a clean unmount leaves a clean volume.
#[test]
fn sequences_agree_with_the_model_under_none() {
    Campaign::comparisons(10_001, 100, 200, Engine::None).run().must_be_good();
}

/// And so it does with an engine that writes each change behind those that it waits for.
#[test]
fn sequences_agree_with_the_model_under_soft_updates() {
    Campaign::comparisons(30_001, 60, 200, Engine::SoftUpdates).run().must_be_good();
}

/// On a volume that is too small, a call that fails changes nothing, and everything can be removed.
#[test]
fn full_volumes_agree_with_the_model() {
    let campaign = Campaign::comparisons(20_001, 40, 250, Engine::Snapshot);
    Campaign { profile: Profile::Full, ..campaign }.run().must_be_good();
    let campaign = Campaign::comparisons(40_001, 20, 250, Engine::SoftUpdates);
    Campaign { profile: Profile::Full, ..campaign }.run().must_be_good();
}

/// Both hold on volumes that keep checksums of file data, where an overwrite takes other blocks.
#[test]
fn sequences_agree_with_the_model_with_checksums() {
    let campaign = Campaign { checksums: true, ..Campaign::comparisons(30_001, 60, 200, Engine::Snapshot) };
    campaign.run().must_be_good();
    let campaign = Campaign { checksums: true, ..Campaign::comparisons(40_001, 30, 250, Engine::Journal) };
    Campaign { profile: Profile::Full, ..campaign }.run().must_be_good();
}

/// Threads in directories of their own do not notice each other.
#[test]
fn threads_in_their_own_directories_agree_with_their_models() {
    for seed in 0..6 {
        if let Err(wrong) = threads::disjoint(seed, 4, 300, Engine::Snapshot) {
            panic!(
                "threads::disjoint({seed}, 4, 300, Engine::Snapshot): [{}] {}",
                wrong.class, wrong.message
            );
        }
    }
}

/// Threads in the same directories leave a tree without contradictions, and a clean volume.
#[test]
fn threads_in_the_same_directories_leave_a_sound_volume() {
    for seed in 0..10 {
        if let Err(wrong) = threads::shared(seed, 4, 300, Engine::Snapshot) {
            panic!("threads::shared({seed}, 4, 300, Engine::Snapshot): [{}] {}", wrong.class, wrong.message);
        }
    }
}

/// A sync that meets an unmount returns: with success if all that it covers was written, otherwise with an
/// error.
#[test]
fn sync_during_an_unmount_returns() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for seed in 0..40 {
            threads::sync_while_closing(seed, Engine::Snapshot);
        }
        done.send(())
    });
    // This measures nothing: after this time the sync counts as hanging.
    let result = finished.recv_timeout(std::time::Duration::from_secs(60));
    assert!(result.is_ok(), "threads::sync_while_closing hangs, or panicked");
}
