//! Block devices for Yore: files, memory, and a simulated device that records and replays crashes.
