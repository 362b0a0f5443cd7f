//! Serves a Yore volume through FUSE.
