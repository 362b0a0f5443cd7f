//! The clock: what time it is now.

use std::time::{SystemTime, UNIX_EPOCH};
use yore_format::Timestamp;

/// The present, to the nanosecond.
pub fn now() -> Timestamp {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(d) => Timestamp { seconds: d.as_secs() as i64, nanos: d.subsec_nanos() },
        Err(e) => {
            // Before 1970: seconds round down, nanoseconds count up.
            let d = e.duration();
            let (s, n) = (d.as_secs() as i64, d.subsec_nanos());
            match n {
                0 => Timestamp { seconds: -s, nanos: 0 },
                n => Timestamp { seconds: -s - 1, nanos: 1_000_000_000 - n },
            }
        }
    }
}
