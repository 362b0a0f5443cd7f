//! Promises, taking and giving back over a real metadata layer on a device in memory.
