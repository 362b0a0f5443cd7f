//! Promises about volumes that were in use under an engine that orders changes: what closing them would write
//! hides nothing that a check of a closed volume finds.

use super::repaired::*;
use super::*;
use yore_check::{mark_checked, undo_repair, CheckError};

/// The sound volume as a crash leaves it under such an engine.
fn in_use(engine: Engine) -> Builder {
    let mut b = sound();
    (b.sb.engine, b.sb.state) = (engine, VolumeState::InUse);
    b.sb.set_in_place_since(Generation(GENERATION.0 - 2));
    b
}

/// What closing such a volume would write lies in front of the other superblock slot, so whatever was there
/// was not found, and the volume was marked clean. Promises that it is found, first of all and with the words
/// for a closed volume, and that a repair puts a superblock there.
#[test]
fn rubbish_in_the_other_slot_is_found_in_a_volume_in_use() {
    let undo_file = UndoFile::new("in-use-slot");
    for (engine, more) in [(Engine::SoftUpdates, 0), (Engine::Sync, 0), (Engine::SoftUpdates, 1)] {
        let device = in_use(engine).finish();
        let report = checked(&device);
        assert!(report.is_clean(), "{report}");
        let mut b = in_use(engine);
        b.inode(BIG).blocks += more;
        raw(&mut b, 0, |slot| slot.fill(7));
        let device = b.finish();
        let closed = {
            let mut b = sound();
            raw(&mut b, 0, |slot| slot.fill(7));
            checked(&b.finish()).findings
        };
        for scan_from in [0, u64::MAX] {
            let options = CheckOptions { scan_from, ..CheckOptions::default() };
            let report = check(&device, &options).expect("the volume can be checked");
            assert_eq!(report.findings[..1], closed[..], "{report}");
            assert_eq!((report.findings_count, report.proved), (1 + more, false), "{report}");
        }
        let e = mark_checked(&device).unwrap_err();
        assert!(matches!(e, CheckError::NotClean { .. }), "{e}");
        let before = device.snapshot();
        let plan = plan(&device);
        assert!(plan.is_complete(), "{}", plan.after);
        assert_eq!(plan.before.findings[0], closed[0]);
        let done: Vec<Problem> = plan.done.iter().map(|done| done.finding.problem).collect();
        assert_eq!(done[0], OtherSuperblock);
        assert_eq!(done.len() as u64, 1 + more, "{done:?}");
        let _ = std::fs::remove_file(&undo_file.0);
        plan.apply(&undo_file.0).expect("the repair is written");
        let report = checked(&device);
        assert!(report.is_clean() && report.state == VolumeState::Clean, "{report}");
        undo_repair(&device, &undo_file.0).expect("the repair is taken back");
        assert_eq!(device.first_difference(&before), None, "as before, byte for byte");
    }
}
