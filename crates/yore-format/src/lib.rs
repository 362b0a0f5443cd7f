//! Every byte of a Yore volume: structures, magics, checksums, verifiers; no I/O.
