//! What a check of a volume in use needs: the metadata as it was at one instant, and a place for what it
//! finds.

use crate::store::Store;
use crate::{Result, View};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_format::{FindingsRecord, Incarnation};
use yore_meta::{LogPlace, Shadow};

/// A check or a scrub of an open volume, or other work that takes long and may end at any time. It is over
/// when this is dropped.
pub struct Inspection {
    store: Arc<Store>,
    told: u64,
}

impl Inspection {
    /// Whether [`View::break_off_inspections`] was called since it began, or the volume is being closed.
    pub fn is_broken_off(&self) -> bool {
        self.store.broken_off.load(Ordering::Acquire) != self.told
            || self.store.closed.load(Ordering::Acquire)
    }
}

impl Drop for Inspection {
    fn drop(&mut self) {
        let (under_way, changed) = &self.store.inspections;
        *under_way.lock() -= 1;
        changed.notify_all();
    }
}

impl View {
    /// Notes that such work begins, which asks now and then whether it is broken off. Whoever closes
    /// the volume waits until it is over.
    pub fn inspect(&self) -> Inspection {
        let store = self.store().clone();
        *store.inspections.0.lock() += 1;
        let told = store.broken_off.load(Ordering::Acquire);
        Inspection { store, told }
    }

    /// Tells all that is under way to break off, which it does soon, because the volume is to be unmounted.
    /// Returns how much that is.
    pub fn break_off_inspections(&self) -> usize {
        let store = self.store();
        store.broken_off.fetch_add(1, Ordering::AcqRel);
        let under_way = store.inspections.0.lock();
        *under_way
    }

    /// The metadata of the volume as it is now, to be read as a device while work goes on. No call waits for
    /// it, but the first one to need the next generation for an instant. What is overwritten meanwhile is
    /// kept in up to `memory` bytes, and beyond that in a temporary file. There can be one at a time.
    ///
    /// # Errors
    /// [`crate::Error::Refused`] if there is another one; damage and device errors.
    pub fn shadow(&self, memory: u64) -> Result<Shadow> {
        let store = self.store();
        if !store.read_only {
            // What was set aside has no name, and goes as soon as somebody counts.
            crate::ops::reap::free_set_aside(store)?;
        }
        Ok(store.meta.shadow(memory)?)
    }

    /// Where a check of a shadow finds the log.
    pub fn log_of(&self, shadow: &Shadow) -> LogPlace {
        self.store().meta.log_of(shadow)
    }

    /// Whether the volume can be changed: it is open for writing, and no error has stopped that.
    pub fn may_write(&self) -> bool {
        self.store().check_writable().is_ok()
    }

    /// The first incarnation that no inode has yet; `None` if that says nothing, because their numbers have
    /// begun anew.
    pub fn incarnations_end(&self) -> Option<Incarnation> {
        self.store().meta.incarnations_end()
    }

    /// What the last check found and left as it is; `None` if nothing is recorded.
    ///
    /// # Errors
    /// Those of the device.
    pub fn findings(&self) -> Result<Option<FindingsRecord>> {
        Ok(self.store().meta.findings()?)
    }

    /// Records what a check found and left as it is, in place of what was recorded. Takes no room. Durable
    /// when it returns. Only whoever has the [`Shadow`] calls this.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`]; device errors.
    pub fn record_findings(&self, record: &FindingsRecord) -> Result<()> {
        Ok(self.store().meta.record_findings(record)?)
    }
}
