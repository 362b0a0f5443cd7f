//! Disks whose time is computed: see `model` for the models and where their figures come from, `device` for
//! the device that charges its requests to one.

mod device;
mod model;

pub use device::TimedDevice;
pub use model::{HardDisk, Model, Nanos, Range, SolidState, Usage};
