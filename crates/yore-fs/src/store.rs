//! The store: what all operations on an open volume share.

use crate::history::gate::Gate;
use crate::history::record::{Due, Estimates, Missed, Past, Spans, Versions};
use crate::idle::Idle;
use crate::progress::Progress;
use crate::recounts::Recounts;
use crate::types::DEFAULT_RULES;
use crate::{MountOptions, Result};
use parking_lot::{Condvar, Mutex};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use yore_core::inode::InodeState;
use yore_core::{Core, CoreOptions};
use yore_device::Device;
use yore_format::{EventNo, InodeNo, SpaceRules};
use yore_meta::Meta;

/// Ends something that works beside calls, and waits for its end.
pub(crate) type BeforeClose = Box<dyn FnOnce() + Send>;

/// An open volume.
pub(crate) struct Store {
    core: Core,
    pub past: Past,
    /// Closed while a directory is rolled back.
    pub gate: Gate,
    pub due: Due,
    /// How far the volume has come in giving up what forgotten events have seen.
    pub giving_up: Progress,
    pub versions: Versions,
    pub keep_history: bool,
    /// What giving up history would free.
    pub estimates: Estimates,
    /// What each event holds of the past.
    pub spans: Spans,
    /// Versions that the volume has no room for.
    pub missed: Missed,
    pub(crate) closed: AtomicBool,
    /// Ends what works beside calls, before the volume is closed.
    pub(crate) before_close: Mutex<Vec<BeforeClose>>,
    pub(crate) recounts: Recounts,
    /// Checks and scrubs that are under way, and who waits for them to end.
    pub(crate) inspections: (Mutex<usize>, Condvar),
    /// How often those under way were told to break off.
    pub(crate) broken_off: AtomicU64,
    /// Whether a scrub is under way.
    pub(crate) scrubbing: AtomicBool,
    /// What the record of scrubs is written to, if the volume is open for reading only.
    pub(crate) writes_scrubs: OnceLock<Arc<dyn Device>>,
    pub(crate) ticker: Mutex<Option<JoinHandle<()>>>,
    /// The thread that gives up what dying events have seen, while there are some.
    pub(crate) forgetter: Mutex<Option<JoinHandle<()>>>,
    pub(crate) tick: Arc<(Mutex<bool>, Condvar)>,
    /// Whether anybody asks for anything.
    pub(crate) idle: Idle,
    /// After how long without a request scattered files and metadata are laid together; `None`: never.
    pub(crate) defragment_after: Option<Duration>,
}

impl Deref for Store {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Store {
    /// The store of a volume whose metadata was opened, before anything is done with it.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn of(meta: Arc<Meta>, options: &MountOptions) -> Result<Store> {
        let core = Core::new(
            meta,
            CoreOptions {
                read_only: options.read_only,
                access_times: options.access_times,
                data_cache: options.data_cache,
                discard: options.discard,
            },
        );
        let past = Past::open(&core.meta, options)?;
        // [`crate::history::rollback::finish_all`] finishes rollbacks that a crash has interrupted.
        let gate = match !options.read_only && !past.rollbacks.all().is_empty() {
            true => Gate::closed_at(InodeNo::ROOT),
            false => Gate::default(),
        };
        Ok(Store {
            core,
            past,
            gate,
            due: Due::default(),
            giving_up: Progress::default(),
            versions: Versions::default(),
            keep_history: options.keep_history,
            estimates: Estimates::default(),
            spans: Spans::default(),
            missed: Missed::default(),
            closed: AtomicBool::new(false),
            before_close: Mutex::default(),
            recounts: Recounts::default(),
            inspections: Default::default(),
            broken_off: AtomicU64::new(0),
            scrubbing: AtomicBool::new(false),
            writes_scrubs: OnceLock::new(),
            ticker: Mutex::new(None),
            forgetter: Mutex::new(None),
            tick: Arc::default(),
            idle: Idle::default(),
            defragment_after: options.defragment_after,
        })
    }

    /// Wakes the background thread: its next task is due earlier than before.
    pub(crate) fn wake(&self) {
        // Takes the lock, so that a thread that is about to wait either has not looked yet, or waits already.
        let _stop = self.tick.0.lock();
        self.tick.1.notify_all();
    }

    /// How much history a full volume keeps.
    pub(crate) fn space_rules(&self) -> SpaceRules {
        self.meta.space_rules().unwrap_or(DEFAULT_RULES)
    }

    /// Sets how much history a full volume keeps. Durable when it returns.
    ///
    /// # Errors
    /// `ReadOnly`; device errors.
    pub(crate) fn set_space_rules(&self, rules: SpaceRules) -> Result<()> {
        self.check_writable()?;
        self.meta.set_space_rules(rules)?;
        self.past.rule_epoch.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The number up to which an inode's content belongs to the past, too: content that was born at it or
    /// before is neither overwritten nor freed.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn recorded_until(&self, state: &InodeState, no: InodeNo) -> Result<EventNo> {
        match state.known_recorded() {
            Some(recorded_until) => Ok(recorded_until),
            None => Ok(state.learn_recorded(self.past.recorded_until(&self.meta, no)?)),
        }
    }
}
