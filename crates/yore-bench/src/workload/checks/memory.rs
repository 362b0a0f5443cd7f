//! Memory of a check for each inode.
//!
//! The checker of a volume with many files of one block each, as a process of its own: the most memory that
//! it has at once. What the checker of a volume with a hundredth of the files has is taken off, because that
//! is the program and not what it remembers. The rest is divided by how many files the one volume has more.

use super::checker::{peak_memory, yore};
use super::run::{make_volume, Found, Run};
use crate::report::{LeftOut, Unit};
use crate::rival::Serving;
use crate::workload::lines::{Goal, Line};
use crate::{Result, Target};

const PER_DIRECTORY: usize = 1000;
/// For each million inodes at most.
const GOAL: f64 = 16.0 * 1024.0 * 1024.0;

pub(super) fn measure(run: &Run<'_>) -> Result<Found> {
    if run.options.serving == Serving::InProcess {
        let reason = "a check needs a process of its own: measure with the yore command".into();
        return Ok(Found { left_out: vec![LeftOut { target: "memory".into(), reason }], ..Found::default() });
    }
    let directory = run.directory("memory")?;
    let sizes = [run.checks.inodes, run.checks.inodes.div_ceil(100)];
    let images = sizes.map(|files| directory.path.join(format!("of-{files}")));
    for (image, files) in images.iter().zip(sizes) {
        let bytes = (files as u64 * 8192 + (1 << 30)).next_multiple_of(128 << 20);
        make_volume(image, bytes, |target| {
            let (root, zeros) = (target.root()?, [0; 4096]);
            for first in (0..files).step_by(PER_DIRECTORY) {
                run.options.check_stop()?;
                let name = format!("directory-{}", first / PER_DIRECTORY);
                target.mkdir(&root, &name)?;
                let directory = target.open_dir(&root, &name)?;
                for i in first..files.min(first + PER_DIRECTORY) {
                    target.write_at(&target.create(&directory, &format!("file-{i}"))?, 0, &zeros)?;
                }
            }
            target.sync()
        })?;
    }
    let millions = (sizes[0] - sizes[1]) as f64 / 1e6;
    let mut each = Line::new("memory of a check for a million inodes", Unit::Bytes, Goal::Most(GOAL));
    let name = format!("memory of the whole process, {} inodes / {}", sizes[0], sizes[1]);
    let mut whole = Line::new(name, Unit::Bytes, Goal::None);
    for round in run.rounds() {
        round?;
        let peak = |image| peak_memory(yore(&run.options.serving, &[], image)?);
        let [many, few] = [peak(&images[0])?, peak(&images[1])?];
        whole.push([many, few]);
        each.samples[0].push((many - few) / millions);
    }
    Ok(vec![each, whole].into())
}
