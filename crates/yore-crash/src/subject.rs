//! The subject of a test: it carries out operations, and its state can be observed.
//!
//! [`ViewSubject`] is the file system. [`ModelSubject`] is the model with a clock of its own, so that
//! generator, comparison and judge can be tested without a file system, and with one that is wrong on
//! purpose.

mod interface;
mod model;
mod view;
mod walk;

pub use interface::Subject;
pub use model::ModelSubject;
pub use view::{Own, ViewSubject};
pub use walk::{observe, observe_ordered};
