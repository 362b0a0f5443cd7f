//! The asking half: it asks a mount, or a volume opened here.

mod here;
mod methods;
mod mounted;
mod until;
mod watched;

pub use here::Here;
pub use methods::Client;
pub use mounted::{check_writable, Mounted};
pub use until::Until;
pub use watched::Watch;
