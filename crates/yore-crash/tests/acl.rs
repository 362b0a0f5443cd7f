//! A file's access ACL and its mode are two views of one thing: the group bits of the mode are the mask of
//! the ACL, and what the owning group may do only where there is no ACL. So a crash leaves both of one
//! moment, under every engine that orders or logs changes.

use std::ops::ControlFlow;
use std::sync::Arc;
use yore_crash::volume::{make, orders, quiet, used_device};
use yore_device::simulated::{CrashPlan, SimulatedDevice, Tearing};
use yore_device::Device;
use yore_fs::{Engine, File, MountOptions, SetXattrMode, Volume};
use yore_online::OnlineOptions;

const ACCESS: &str = "system.posix_acl_access";

fn options(engine: Engine, read_only: bool) -> MountOptions {
    quiet((!read_only).then_some(engine), read_only)
}

/// An ACL in the encoding of Linux: the owner, so many users, the group, a mask if there are users, and
/// others.
fn acl(users: u32, group: u16, mask: u16, others: u16) -> Vec<u8> {
    let mut entries = vec![(0x01, 6, u32::MAX)];
    entries.extend((0..users).map(|user| (0x02, 6, 1000 + user)));
    entries.push((0x04, group, u32::MAX));
    entries.extend((users > 0).then_some((0x10, mask, u32::MAX)));
    entries.push((0x20, others, u32::MAX));
    let mut encoded = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        encoded.extend(u16::to_le_bytes(tag));
        encoded.extend(u16::to_le_bytes(permissions));
        encoded.extend(u32::to_le_bytes(id));
    }
    encoded
}

fn set(volume: &Volume, acl: &[u8]) {
    volume.set_xattr("a", ACCESS, acl, SetXattrMode::Any).unwrap();
}

/// What is done to the file, one after the other. Each leaves a mode and an ACL that no other leaves
/// together.
const CHANGES: [fn(&Volume); 8] = [
    |volume| set(volume, &acl(1, 4, 6, 0)),
    |volume| set(volume, &acl(1, 4, 4, 0)),
    |volume| set(volume, &acl(400, 4, 6, 4)),
    |volume| volume.set_permissions("a", 0o600).unwrap(),
    |volume| volume.set_permissions("a", 0o670).unwrap(),
    // It says no more than a mode does, so the file has no ACL then.
    |volume| set(volume, &acl(0, 4, 0, 4)),
    |volume| set(volume, &acl(200, 0, 7, 0)),
    |volume| volume.remove_xattr("a", ACCESS).unwrap(),
];

/// The mode and the ACL of the file.
fn seen(volume: &Volume) -> (u32, Option<Vec<u8>>) {
    (volume.metadata("a").unwrap().permissions() & 0o7777, volume.get_xattr("a", ACCESS).unwrap())
}

/// Under the engines that order changes a crash could leave the mode with the mask, and not the ACL: the
/// owning group could do what the mask allows to others. What a recount makes of a crash is the same pair.
fn mode_and_acl_are_of_one_moment(engine: Engine) {
    for with_others in [false, true] {
        let device = Arc::new(SimulatedDevice::new(used_device()));
        let shared: Arc<dyn Device> = device.clone();
        make(&shared, engine, 1).unwrap_or_else(|wrong| panic!("{}", wrong.message));
        let volume = Volume::open(shared, &options(engine, false)).unwrap();
        volume.write("a", "content").unwrap();
        volume.set_permissions("a", 0o640).unwrap();
        for (name, len) in [("user.large", 3000), ("user.small", 10)].into_iter().filter(|_| with_others) {
            volume.set_xattr("a", name, vec![7; len], SetXattrMode::Any).unwrap();
        }
        volume.sync().unwrap();
        device.restart_trace();
        let file = File::open(&volume, "a").unwrap();
        let mut moments = vec![seen(&volume)];
        for change in CHANGES {
            change(&volume);
            moments.push(seen(&volume));
            file.sync_all().unwrap();
            device.mark(moments.len() as u64 - 1);
        }
        let plan =
            CrashPlan { exhaustive_max: 8, samples: 4, tearing: Tearing::Blocks, ..CrashPlan::default() };
        let trace = device.trace();
        let mut states = 0;
        for case in trace.crash_states(&plan) {
            let durable = trace.marks_before(case.after_entry()).last().unwrap_or(0) as usize;
            let may_be = &moments[durable..moments.len().min(durable + 2)];
            let must_be_one = |then: &Volume, when: &str| {
                let (mode, acl) = seen(then);
                let bytes = acl.as_ref().map(Vec::len);
                let message = format!("{}, {}, {when}: {mode:o}, {bytes:?}", engine.name(), case.state());
                assert!(may_be.contains(&(mode, acl)), "{message} behind change {durable}");
            };
            let medium = Arc::new(case.materialise());
            must_be_one(&Volume::open(medium, &options(engine, true)).unwrap(), "as the crash left it");
            states += 1;
            if orders(engine) && states % 5 == 0 {
                let medium = Arc::new(case.materialise());
                let then = Volume::open(medium, &options(engine, false)).unwrap();
                let recount = OnlineOptions::default();
                yore_online::recount(then.view(), &recount, &mut |_| ControlFlow::Continue(())).unwrap();
                must_be_one(&then, "recounted");
                then.close().unwrap();
            }
        }
        assert!(states > 10, "only {states} states");
    }
}

#[test]
fn an_acl_and_its_mode_survive_together_under_snapshot() {
    mode_and_acl_are_of_one_moment(Engine::Snapshot);
}

#[test]
fn an_acl_and_its_mode_survive_together_under_journal() {
    mode_and_acl_are_of_one_moment(Engine::Journal);
}

#[test]
fn an_acl_and_its_mode_survive_together_under_soft_updates() {
    mode_and_acl_are_of_one_moment(Engine::SoftUpdates);
}

#[test]
fn an_acl_and_its_mode_survive_together_under_sync() {
    mode_and_acl_are_of_one_moment(Engine::Sync);
}
