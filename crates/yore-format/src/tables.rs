//! The layout of the structures as data, so that what describes the medium elsewhere (`docs/FORMAT.md`,
//! dumps) can be compared with what the code does.

/// A field of a structure on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLayout {
    /// Its name in the structure.
    pub name: &'static str,
    /// Bytes before it.
    pub offset: usize,
    /// Its bytes.
    pub size: usize,
}

/// A structure of fixed size on the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructLayout {
    /// Its name in FORMAT.md.
    pub name: &'static str,
    /// Its bytes.
    pub size: usize,
    /// Its fields in ascending order; they leave no gap.
    pub fields: Vec<FieldLayout>,
}

/// Bytes of the field that `_get` selects.
pub(crate) fn field_size<S, F>(_get: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// The layout of a `repr(C)` struct: its name in FORMAT.md, its type and its fields.
macro_rules! layout {
    ($name:literal, $type:ty: $($field:ident),* $(,)?) => {
        $crate::tables::StructLayout {
            name: $name,
            size: size_of::<$type>(),
            fields: vec![$($crate::tables::FieldLayout {
                name: stringify!($field),
                offset: std::mem::offset_of!($type, $field),
                size: $crate::tables::field_size(|s: &$type| &s.$field),
            }),*],
        }
    };
}
pub(crate) use layout;

/// A layout that is given by offsets: each field ends where the next begins, the last at `size`.
pub(crate) fn layout_of_offsets(
    name: &'static str,
    size: usize,
    fields: &[(&'static str, usize)],
) -> StructLayout {
    let end = |i: usize| fields.get(i + 1).map_or(size, |next| next.1);
    let fields = fields
        .iter()
        .enumerate()
        .map(|(i, (name, offset))| FieldLayout { name, offset: *offset, size: end(i) - offset })
        .collect();
    StructLayout { name, size, fields }
}
