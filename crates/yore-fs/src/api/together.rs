//! Laying metadata together on request, as the housekeeping does it by itself when nobody asks for anything
//! (`opened.rs`). What is done is said in `yore-meta/src/meta/together.rs`.

use crate::{Error, Result, View};
use std::ops::ControlFlow;
use yore_meta::ZonesLaid;

/// What was laid together of a volume's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MetadataLaid {
    /// Zones whose blocks lay apart.
    pub zones: u64,
    /// Blocks that were moved.
    pub blocks: u64,
}

impl View {
    /// Lays the metadata of the volume together: of each zone whose blocks lie apart they come to follow one
    /// another. Nothing else changes, and nothing takes more room. So a check reads less. Engines that write
    /// blocks where they are leave them there, and nothing is done. `ask` is called now and then, and says
    /// whether to go on; what was laid together stays so. O(zones).
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Refused`] while the volume is checked; device errors. A zone of which
    /// something is damaged stays as it is, without an error.
    pub fn lay_metadata_together(&self, ask: &mut dyn FnMut() -> ControlFlow<()>) -> Result<MetadataLaid> {
        let store = self.live()?;
        store.check_writable()?;
        // What was changed is laid together with what was not.
        store.meta.sync()?;
        let mut laid = MetadataLaid::default();
        while ask().is_continue() {
            match store.meta.lay_zones_together(&|| false)? {
                ZonesLaid::Nothing => break,
                ZonesLaid::Examined => {}
                ZonesLaid::Zones { zones, blocks } => {
                    laid.zones += zones as u64;
                    laid.blocks += blocks as u64;
                }
                ZonesLaid::Busy => {
                    return Err(Error::Refused("the volume is being checked; wait until that is done".into()))
                }
            }
        }
        Ok(laid)
    }
}
