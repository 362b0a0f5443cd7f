//! Random sequences under the engines that order changes, also of several threads, with crashes at any write:
//! each name and inode is what it was at some moment since the last sync, and what ties them together holds
//! (docs/TESTING.md, "Under engines that order changes").

#[cfg(not(feature = "mutations"))]
mod promises {
    use std::sync::Arc;
    use yore_crash::campaign::{try_case, Campaign};
    use yore_crash::case::Case;
    use yore_crash::generate::Profile;
    use yore_crash::record::record;
    use yore_crash::trial::Trial;
    use yore_crash::volume::{make, must_be_sound, open, used_device, Findings};
    use yore_device::simulated::{Choice, CrashPlan, CrashState, SimulatedDevice, Tearing};
    use yore_device::Device;
    use yore_fs::{Caller, Engine, Error, FileKind, SetXattrMode};

    fn every_crash_under(engine: Engine) {
        let summary = Campaign { engine, ..Campaign::crashes(1, 2_000) }.run();
        summary.must_be_good();
        assert!(summary.states >= 2_000, "only {} states were tried", summary.states);
    }

    #[test]
    fn every_random_crash_under_soft_updates_leaves_what_was_promised() {
        every_crash_under(Engine::SoftUpdates);
    }

    #[test]
    fn every_random_crash_under_sync_leaves_what_was_promised() {
        every_crash_under(Engine::Sync);
    }

    /// Files and directories are fsynced beside others that leave their changes pending: what was fsynced is
    /// there, with a way to it, and what a part of a generation has left out comes in its order later.
    #[test]
    fn every_crash_beside_fsyncs_leaves_what_was_promised() {
        for engine in [Engine::SoftUpdates, Engine::Sync] {
            let states = if engine == Engine::SoftUpdates { 60 } else { 30 };
            for seed in 0..12 {
                let plain = Case { engine, ..Case::new(seed, 60, Profile::Part) };
                let case = match seed % 5 {
                    3 => Case { stalled: true, ..plain },
                    4 => plain.with_events(),
                    _ => plain,
                };
                if let Err(failure) = try_case(&case, states, &mut |_| true) {
                    panic!("{failure}");
                }
            }
        }
    }

    /// The lines of crashes that once left something else; without a crash, all that are tried of a sequence.
    fn tried(lines: &[&str]) {
        for line in lines {
            let case: Case = line.parse().expect("a line");
            if let Err(failure) = try_case(&case, 150, &mut |_| true) {
                panic!("{failure}");
            }
        }
    }

    /// The Op that enters the row of an expunging was not whole. A crash left the row without its key, or the
    /// row and the file as it had been before.
    #[test]
    fn the_row_of_an_expunging_comes_alone() {
        tried(&[
            "seed=18 ops=60 keep=3,11,36 profile=shared engine=soft-updates events expunges crash=25:all-but=0:blocks",
            "seed=36 ops=60 keep=3-4,6 profile=shared engine=sync discard events expunges",
            "seed=2084 ops=16 keep=10,12-13 profile=across engine=sync discard events expunges",
        ]);
    }

    /// A row of the past came, and the change did not that it had been made for. The next change recorded the
    /// same state again, so two rows said it, with two ends; and a snapshot showed the wrong one.
    #[test]
    fn a_state_that_has_not_ended_is_recorded_once() {
        tried(&[
            "seed=376 ops=60 keep=30-41 engine=soft-updates discard usual crash=20:none:blocks use",
            "seed=14 ops=60 keep=1,6,12,14,16,23-24,26,31-33,51-56,59 engine=sync closes events expunges crash=60:none:blocks use",
            "seed=50512 ops=11 keep=0-4 profile=systematic engine=soft-updates events",
        ]);
    }

    /// A file of three names was being expunged, so a row of the past said of one of them that it began with
    /// that. A crash left the row, and the entry as it had been before. Nobody saw that they meant the same:
    /// the checker found damage, and the row stayed.
    #[test]
    fn a_name_that_is_being_expunged_may_not_have_ended() {
        let line = "seed=7000013 ops=60 keep=0-1,9,13,19,32,34 engine=sync closes events expunges";
        let mended = Trial { repair: true, ..Trial::default() };
        every_moment_of(line, &[Trial { use_it: true, ..mended }, mended]);
    }

    /// A name of a file that had others came to mean another file. A crash left the row with the version, and
    /// the entry as it is now, but not the lower count of links. The repair gave the version up, since the
    /// inode in use said the same, and lowered the count: the snapshot showed it, too.
    #[test]
    fn a_repair_changes_nothing_that_a_snapshot_has_seen() {
        let line = "seed=7000013 ops=60 keep=0-1,9,19,32,34 engine=sync closes events";
        every_moment_of(line, &[Trial { repair: true, ..Trial::default() }]);
    }

    /// A crash left a file with more links than names, and none of the names was where the file said that its
    /// name was. The repair lowered the count, and the file still said so when it had one name again: damage.
    #[test]
    fn a_file_of_several_names_says_where_one_is_or_nothing() {
        tried(&[
            "seed=77002290 ops=60 keep=0-11,15-59 engine=soft-updates discard crash=140:none:blocks repair more=215118",
        ]);
    }

    /// A version was kept in an Op of its own, and the next Op changed names. The names went to the medium
    /// before the version did. So the inode in use was still the one that a snapshot had seen, with counts
    /// that did not agree with the names; and the snapshot showed the counts that the repair set.
    #[test]
    fn a_version_comes_before_the_names_that_change_behind_it() {
        let mended = Trial { repair: true, ..Trial::default() };
        every_moment_of("seed=3679 ops=18 keep=0-1 profile=across engine=sync events expunges", &[mended]);
    }

    /// Tries all moments of a sequence: at each nothing that was pending is there, and all of it.
    fn every_moment_of(line: &str, trials: &[Trial]) {
        let case: Case = line.parse().expect("a line");
        let recorded = record(&case).expect("nothing is wrong without a crash");
        for after_entry in 0..=recorded.entries() {
            for (choice, trial) in
                [Choice::None, Choice::All].into_iter().flat_map(|c| trials.iter().map(move |t| (c, t)))
            {
                let state = CrashState { after_entry, choice, tearing: Tearing::Blocks };
                if let Err(wrong) = recorded.try_state(state, *trial) {
                    panic!("{line} {state} {trial:?}: {}", wrong.message);
                }
            }
        }
    }

    /// A directory was made and renamed. Its first name waited for its inode, and its second one did not,
    /// since the count of a directory is not raised for a rename: the name was there, and the inode was not.
    #[test]
    fn a_directory_that_was_just_made_is_there_under_its_next_name() {
        tried(&["seed=7000041 ops=60 profile=fsync engine=soft-updates log=48 discard"]);
    }

    /// A new attribute of more cells than one leaf has: those that came into the second leaf behind its
    /// pointer did not come before the inode, and a crash left a part of the value.
    #[test]
    fn an_attribute_of_several_leaves_is_whole_or_not_there() {
        let device = Arc::new(SimulatedDevice::new(used_device()));
        let shared: Arc<dyn Device> = device.clone();
        make(&shared, Engine::SoftUpdates, 1).expect("a new volume");
        let view = open(shared).expect("it was never used");
        let (caller, root) = (Caller::superuser(), view.root());
        let node = view.create(&caller, root, b"a", FileKind::Regular, 0o644, 0).expect("there is room");
        view.checkpoint().expect("the device works");
        device.restart_trace();
        let value = yore_crash::op::payload(3, 5859);
        view.setxattr(node.inode(), b"user.a", &value, SetXattrMode::Any).expect("there is room");
        view.checkpoint().expect("the device works");
        let trace = device.trace();
        for after_entry in 0..=trace.len() {
            let point = trace.crash_point(after_entry).expect("an entry");
            let plan = CrashPlan { exhaustive_max: 64, tearing: Tearing::Blocks, ..CrashPlan::default() };
            for choice in point.choices(&plan) {
                let medium =
                    Arc::new(point.materialise(choice, Tearing::Blocks).expect("a choice of the plan"));
                must_be_sound(&*medium, Findings::Ordered, "as the crash left it")
                    .unwrap_or_else(|wrong| panic!("{after_entry} {choice:?}: {}", wrong.message));
                let view = open(medium).expect("a crash needs no repair");
                let node = view.lookup(view.root(), b"a").expect("it was durable");
                match view.getxattr(node.inode(), b"user.a") {
                    Ok(found) => assert!(found == value, "{after_entry} {choice:?}: a part of the value"),
                    Err(Error::NoAttribute) => {}
                    Err(error) => panic!("{after_entry} {choice:?}: {error}"),
                }
            }
        }
    }

    /// A row of the past named blocks before they were marked used: it did not wait for what waited in the
    /// inode.
    #[test]
    fn a_row_waits_for_what_it_says() {
        tried(&[
            "seed=656 ops=10 keep=5-6,8-9 profile=across engine=sync events",
            "seed=471 ops=60 keep=0,3,15,21,25,28,32 profile=shared engine=sync events expunges",
            "seed=507 ops=60 keep=14,33-34,41,47,50 profile=shared engine=sync events expunges",
        ]);
    }
}

/// The switches affect the whole process, so this is one test, and alone where it is.
#[cfg(feature = "mutations")]
mod mutations {
    use yore_crash::campaign::Campaign;
    use yore_fs::mutation::{set, Mutation};
    use yore_fs::Engine;

    /// States within which the random crashes must find a mutation.
    const STATES: u64 = 20_000;

    /// What is wrong in few places is looked for by `make campaign-ordered`, which sets ORDERED_MUTATIONS.
    #[test]
    fn random_crashes_find_a_wrong_order() {
        let few = [
            (Mutation::EdgesDropped, Engine::SoftUpdates),
            (Mutation::RoundsUnflushed, Engine::SoftUpdates),
            (Mutation::PartWithoutFirsts, Engine::SoftUpdates),
            (Mutation::EdgesDropped, Engine::Sync),
            (Mutation::Unsettled, Engine::Sync),
        ];
        let rare = [
            (Mutation::HeldReusedEarly, Engine::SoftUpdates),
            (Mutation::NamedAtOnce, Engine::SoftUpdates),
            (Mutation::OlderBelieved, Engine::SoftUpdates),
        ];
        let (rare, states) = match std::env::var_os("ORDERED_MUTATIONS") {
            Some(_) => (&rare[..], 20 * STATES),
            None => (&[][..], STATES),
        };
        let mut missed = Vec::new();
        for (mutation, engine) in few.iter().chain(rare) {
            set(*mutation);
            let campaign = Campaign { engine: *engine, shorten: false, ..Campaign::crashes(1, states) };
            let summary = campaign.run();
            set(Mutation::None);
            match summary.failures.first() {
                Some(failure) => {
                    println!("{mutation:?}, {}: {} states, {failure}", engine.name(), summary.states);
                }
                None => missed.push((mutation, engine.name())),
            }
        }
        assert!(missed.is_empty(), "nothing was found of {missed:?}");
    }
}
