//! The workloads, one per file.

mod checks;
mod computed;
mod history;
mod latency;
mod lines;
mod mechanism;
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

pub use checks::{CheckPart, Checks};
pub use history::{History, HistoryPart};
pub use latency::Latency;
pub use mechanism::Mechanism;
pub use micro::{Micro, MicroStep};
pub use papers::{Experiment, Papers, Scale};
pub use postmark::PostMark;
pub use resident::Resident;
pub use simulated::{Simulated, SimulatedWorkload};
pub use startup::{fill, Fill, Startup};
pub use stream::Stream;
pub use tree::Tree;
pub use waited::Waited;
