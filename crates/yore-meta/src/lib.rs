//! Yore's metadata layer: cache, zones, operations, generations and the engines.
