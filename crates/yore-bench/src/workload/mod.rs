//! The workloads, one per file.

mod checked;
mod history;
mod latency;
mod micro;
mod papers;
mod player;
mod postmark;
mod resident;
mod script;
mod simulated;
mod startup;
mod steps;
mod stream;
mod tree;
mod waited;

pub use checked::Checked;
pub use history::{History, HistoryPart};
pub use latency::Latency;
pub use micro::{Micro, MicroStep};
pub use papers::{Experiment, Papers, Scale};
pub use postmark::PostMark;
pub use resident::Resident;
pub use simulated::{Simulated, SimulatedWorkload};
pub use startup::{fill, Fill, Startup};
pub use stream::Stream;
pub use tree::Tree;
pub use waited::Waited;
