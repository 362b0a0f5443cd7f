//! The Yore file system library: open a volume and use it like std::fs.
