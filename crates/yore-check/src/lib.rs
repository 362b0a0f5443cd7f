//! The complete structural check of a Yore volume, independent of the file system code.
