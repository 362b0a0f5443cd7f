//! Model file system, operation generator and crash-state enumeration for Yore.
