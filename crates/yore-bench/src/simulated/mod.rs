//! Disks whose time is computed: see `model` for the models and where their figures come from, `device` for
//! the device that charges its requests to one, `scattered` for one whose metadata does not lie together.

mod device;
mod model;
mod scattered;

pub use device::TimedDevice;
pub use model::{HardDisk, Model, Nanos, Range, SolidState, Usage};
pub(crate) use scattered::Scattered;

/// The disks that workloads are measured on.
pub(crate) const DISKS: [&str; 2] = ["disk of 7,200 turns a minute", "solid-state disk"];

/// One of [`DISKS`], by its place there.
pub(crate) fn disk(which: usize) -> Box<dyn Model> {
    match which {
        0 => Box::new(HardDisk::new()),
        _ => Box::new(SolidState::new()),
    }
}
