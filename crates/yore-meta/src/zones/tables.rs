//! Where a group has its tables: the first zone of the group says so.

use super::zone::{Changes, Zone};
use std::sync::Arc;
use yore_format::{BlockKind, Generation, MetaAddr, TablePlace, ZoneNo, TABLES_PER_GROUP};

impl Zone {
    /// First zones only: the group's table of this kind and number; `None` if the group has none.
    pub(crate) fn table(&self, kind: BlockKind, number: u8) -> Option<MetaAddr> {
        let s = self.state.lock();
        let place = TablePlace::decode(s.tables[TablePlace::position(kind, number)])?;
        let zone = match place.zone {
            0 => self.no,
            further => ZoneNo(s.extras[usize::from(further) - 1]),
        };
        Some(MetaAddr::new(zone, place.index))
    }

    /// First zones only: the numbers of the group's tables of a kind.
    pub(crate) fn tables(&self, kind: BlockKind) -> Vec<u8> {
        let s = self.state.lock();
        let numbers = 0..TABLES_PER_GROUP as u8;
        numbers.filter(|number| s.tables[TablePlace::position(kind, *number)] != 0).collect()
    }

    /// First zones only: enters where a table of the group lies, or that it is gone.
    pub(crate) fn set_table(
        self: &Arc<Self>,
        changes: &Changes,
        generation: Generation,
        (kind, number): (BlockKind, u8),
        at: Option<MetaAddr>,
    ) {
        self.touch(changes, generation, |s| {
            let place = at.map_or(0, |at| {
                let zone = match at.zone() == self.no {
                    true => 0,
                    false => {
                        let further = s.extras.iter().position(|extra| *extra == at.zone().0);
                        further.expect("a table lies in a zone of its group") as u8 + 1
                    }
                };
                TablePlace { zone, index: at.index() }.encode()
            });
            s.tables[TablePlace::position(kind, number)] = place;
        });
    }
}
