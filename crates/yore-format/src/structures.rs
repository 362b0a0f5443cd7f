//! The layouts of all structures of fixed size.

use crate::StructLayout;

/// Every structure of fixed size, derived from the definitions that encode and decode.
pub fn layout_tables() -> Vec<StructLayout> {
    let mut tables = vec![
        crate::header::layout(),
        crate::superblock::layout(),
        crate::superblock::root_zone_layout(),
        crate::spare::layout(),
        crate::scrubs::layout(),
        crate::zone::header_layout(),
        crate::zone::entry_layout(),
        crate::bitmap::layout(),
        crate::inode::layout(),
        crate::inode::time_layout(),
        crate::node::layout(),
    ];
    tables.extend(crate::group_tables::layouts());
    tables.extend(crate::history::layouts());
    tables.extend(crate::policy::layouts());
    tables.extend(crate::intent::layouts());
    tables
}
