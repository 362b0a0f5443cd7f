//! The fields that only some events have: who took them, what they are for, why and how long they are held.

use crate::{tagged, Corruption};
use serde::{Deserialize, Serialize};

const WHAT: &str = "event";
const BY: u8 = 1;
const DESCRIPTION: u8 = 2;
const HOLD_REASON: u8 = 3;
const HELD_BY: u8 = 4;
const HELD_UNTIL: u8 = 5;
const FORGOTTEN_FOR: u8 = 6;

/// The longest description of a snapshot, in bytes.
pub const DESCRIPTION_MAX: usize = 512;
/// The longest reason of a hold, in bytes.
pub const HOLD_REASON_MAX: usize = 255;

/// Why an event was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::FromRepr)]
#[repr(u8)]
pub enum ForgottenFor {
    /// Somebody asked for it.
    Request = 1,
    /// No rule of a policy, or of a command, kept it.
    Rules = 2,
    /// The volume was full.
    Space = 3,
}

/// The fields that only some events have. A volume has such rows only with
/// [`crate::WriteFeatures::EXTENDED_PAST`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMore {
    /// The user who took it. `None`: not recorded, as for events that policies take.
    pub by: Option<u32>,
    /// A description by users, at most [`DESCRIPTION_MAX`] bytes.
    pub description: String,
    /// Why it is held, at most [`HOLD_REASON_MAX`] bytes.
    pub hold_reason: String,
    /// Who holds it.
    pub held_by: Option<u32>,
    /// Until when nobody may forget it, in seconds since 1970.
    pub held_until: Option<i64>,
    /// Why it was forgotten.
    pub forgotten_for: Option<ForgottenFor>,
}

impl EventMore {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == EventMore::default()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let fits = tagged::is_storable_text(&self.description, DESCRIPTION_MAX)
            && tagged::is_storable_text(&self.hold_reason, HOLD_REASON_MAX);
        assert!(fits, "a text that cannot be stored: {self:?}");
        let mut fields = tagged::Writer::default();
        fields.add(BY, self.by.map(u32::to_le_bytes).as_ref().map_or(&[], |b| &b[..]));
        fields.add(DESCRIPTION, self.description.as_bytes());
        fields.add(HOLD_REASON, self.hold_reason.as_bytes());
        fields.add(HELD_BY, self.held_by.map(u32::to_le_bytes).as_ref().map_or(&[], |b| &b[..]));
        fields.add(HELD_UNTIL, self.held_until.map(i64::to_le_bytes).as_ref().map_or(&[], |b| &b[..]));
        fields.add(FORGOTTEN_FOR, self.forgotten_for.map(|why| [why as u8]).as_ref().map_or(&[], |b| &b[..]));
        fields.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<EventMore, Box<Corruption>> {
        let mut more = EventMore::default();
        tagged::read(WHAT, bytes, |tag, field| {
            match tag {
                BY => more.by = Some(u32::from_le_bytes(tagged::number(WHAT, "user", field)?)),
                DESCRIPTION => {
                    more.description = tagged::text(WHAT, "description", DESCRIPTION_MAX, field)?;
                }
                HOLD_REASON => {
                    more.hold_reason = tagged::text(WHAT, "reason of the hold", HOLD_REASON_MAX, field)?;
                }
                HELD_BY => more.held_by = Some(u32::from_le_bytes(tagged::number(WHAT, "holder", field)?)),
                HELD_UNTIL => {
                    let seconds = tagged::number(WHAT, "end of the hold", field)?;
                    more.held_until = Some(i64::from_le_bytes(seconds));
                }
                FORGOTTEN_FOR => {
                    let [why] = tagged::number(WHAT, "why it was forgotten", field)?;
                    let known = ForgottenFor::from_repr(why);
                    let unknown = || Corruption::new(WHAT, "why it was forgotten", "1 to 3", why);
                    more.forgotten_for = Some(known.ok_or_else(unknown)?);
                }
                unknown => return Err(Corruption::new(WHAT, "tag", "1 to 6", unknown)),
            }
            Ok(())
        })?;
        Ok(more)
    }
}
