//! The store: what all operations on one open volume share.

use crate::alloc::Alloc;
use crate::file::{self, FileCache};
use crate::gate::Gate;
use crate::history::Versions;
use crate::inode::{InodeCell, InodeTable};
use crate::locks::{OrderedMutex, Rank};
use crate::orphan::Orphans;
use crate::past::Past;
use crate::policy::{self, Due};
use crate::progress::Progress;
use crate::room::{Estimates, Most, DEFAULT_RULES};
use crate::types::Behalf;
use crate::{Error, MountOptions, Result, Statfs};
use parking_lot::{Condvar, Mutex};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use yore_device::Device;
use yore_format::layout::GROUP_BLOCKS;
use yore_format::{GroupNo, Incarnation, InodeNo, Number, SpaceRules, Timestamp, BLOCK_SIZE, NAME_MAX};
use yore_meta::{Meta, MetaError, MetaOptions, Reclaimer, Reserved, ReservedInode};

/// How often attributes that only aged in memory are looked after.
const TICK: Duration = Duration::from_secs(5);

/// An open volume.
pub(crate) struct Store {
    pub meta: Arc<Meta>,
    pub alloc: Arc<Alloc>,
    pub files: FileCache,
    pub inodes: InodeTable,
    pub orphans: Orphans,
    pub past: Past,
    /// Closed where a directory is being made what it was.
    pub gate: Gate,
    pub due: Due,
    /// How far giving up is of what forgotten cuts have seen.
    pub giving_up: Progress,
    pub versions: Versions,
    /// Taken first by renames between directories: keeps the tree's shape still while ancestors are compared.
    pub rename: OrderedMutex,
    pub hash_seed: [u8; 16],
    pub read_only: bool,
    pub access_times: bool,
    pub keep_history: bool,
    /// What giving up history would free.
    pub estimates: Estimates,
    /// Cells whose times alone are to be written some time.
    aged: Mutex<Vec<Arc<InodeCell>>>,
    closed: AtomicBool,
    ticker: Mutex<Option<JoinHandle<()>>>,
    /// Gives up what dying cuts have seen, while there are some.
    forgetter: Mutex<Option<JoinHandle<()>>>,
    tick: Arc<(Mutex<bool>, Condvar)>,
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(|e| Error::Refused(format!("cannot start a thread: {e}")))
}

/// The present, to the nanosecond.
pub(crate) fn now() -> Timestamp {
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

impl From<MetaError> for Error {
    fn from(e: MetaError) -> Error {
        match e {
            MetaError::Corruption(c) => Error::Corruption(c),
            MetaError::Device(e) => Error::Device(e),
            MetaError::NeedZone { .. } => Error::NoSpace,
            MetaError::ReadOnly => Error::ReadOnly,
            MetaError::Stopped { first } => Error::Stopped { first: Box::new((*first).into()) },
            other => Error::Refused(other.to_string()),
        }
    }
}

impl Store {
    /// Opens the volume on `device`, frees what a crash left half-freed, and starts the background threads.
    pub(crate) fn open(device: Arc<dyn Device>, options: &MountOptions) -> Result<Arc<Store>> {
        let meta_options = MetaOptions {
            read_only: options.read_only,
            engine: options.engine,
            cache_bytes: options.metadata_cache,
            commit_interval: options.commit_interval,
        };
        let meta = match Meta::open(device.clone(), meta_options.clone()) {
            Err(MetaError::RecoverFirst { recorded }) => {
                // Under its own engine (R5); then the one asked for finds nothing to recover.
                let own = MountOptions { engine: Some(recorded), ..options.clone() };
                Store::open(device.clone(), &own)?.close()?;
                Meta::open(device, meta_options)?
            }
            other => other?,
        };
        let alloc = Arc::new(Alloc::new(&meta));
        let reclaimer: Arc<dyn Reclaimer> = alloc.clone();
        meta.set_reclaimer(Arc::downgrade(&reclaimer));
        let hash_seed = meta.found().hash_seed;
        let past = Past::open(&meta, options.reading_lasts)?;
        // What a crash has interrupted is finished by [`crate::rollback::finish_all`].
        let gate = match !options.read_only && !past.rollbacks.all().is_empty() {
            true => Gate::closed_at(InodeNo::ROOT),
            false => Gate::default(),
        };
        let store = Arc::new(Store {
            alloc,
            files: FileCache::new(options.data_cache),
            inodes: InodeTable::new(),
            orphans: Orphans::default(),
            past,
            gate,
            due: Due::default(),
            giving_up: Progress::default(),
            versions: Versions::default(),
            rename: OrderedMutex::new(Rank::Rename),
            hash_seed,
            read_only: options.read_only,
            access_times: options.access_times && !options.read_only,
            keep_history: options.keep_history,
            estimates: Estimates::default(),
            aged: Mutex::default(),
            closed: AtomicBool::new(false),
            ticker: Mutex::new(None),
            forgetter: Mutex::new(None),
            tick: Arc::default(),
            meta,
        });
        if let Some(recovered) = store.meta.take_recovered() {
            file::restore(&store, &recovered.files)?;
            if !store.read_only {
                file::flush_all(&store)?;
                store.meta.finish_recovery()?;
            }
        }
        if !store.read_only {
            crate::orphan::reclaim_all(&store)?;
            store.files.start(&store)?;
            policy::start(&store)?;
            store.start_ticker()?;
        }
        Ok(store)
    }

    /// Everything done before to the volume's metadata, and data noted or written, is durable when this returns.
    pub(crate) fn force(&self) -> Result<()> {
        Ok(self.meta.force()?)
    }

    fn start_ticker(self: &Arc<Self>) -> Result<()> {
        let (weak, tick) = (Arc::downgrade(self), self.tick.clone());
        let run = move || loop {
            let wait = match Weak::upgrade(&weak) {
                Some(store) => store.due.next().map_or(TICK, |next| next.min(TICK)),
                None => return,
            };
            let mut stop = tick.0.lock();
            if !*stop {
                tick.1.wait_for(&mut stop, wait);
            }
            if *stop {
                return;
            }
            drop(stop);
            let Some(store) = Weak::upgrade(&weak) else { return };
            let kept = policy::cut_due(&store)
                .and_then(|()| policy::retain_in_time(&store))
                .and_then(|()| crate::orphan::free_set_aside(&store))
                .and_then(|()| store.flush_aged())
                .and_then(|()| store.alloc.give_back_zones(&store.meta))
                .and_then(|()| store.forget_in_background());
            if let Err(e) = kept {
                tracing::warn!("housekeeping: {e}");
            }
        };
        *self.ticker.lock() = Some(spawn("yore-tick", run)?);
        Ok(())
    }

    /// What is to be done next is to be done earlier than it was.
    pub(crate) fn wake(&self) {
        // Under the lock, so that whoever is about to wait has not looked yet, or waits already.
        let _stop = self.tick.0.lock();
        self.tick.1.notify_all();
    }

    /// Goes on with forgetting, if there is any to do and nobody at it.
    fn forget_in_background(self: &Arc<Self>) -> Result<()> {
        let mut forgetter = self.forgetter.lock();
        let at_it = forgetter.as_ref().is_some_and(|thread| !thread.is_finished());
        if at_it || !self.past.is_forgetting() {
            return Ok(());
        }
        let (weak, tick) = (Arc::downgrade(self), self.tick.clone());
        let run = move || {
            let Some(store) = Weak::upgrade(&weak) else { return };
            let ask = &mut |_: &_| match *tick.0.lock() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            if let Err(e) = crate::forget::finish(&store, ask) {
                tracing::warn!("forgetting stopped, and goes on later: {e}");
            }
        };
        *forgetter = Some(spawn("yore-forget", run)?);
        Ok(())
    }

    /// How much history a full volume keeps.
    pub(crate) fn space_rules(&self) -> SpaceRules {
        self.meta.space_rules().unwrap_or(DEFAULT_RULES)
    }

    /// Says how much history a full volume keeps. Durable when it returns.
    ///
    /// # Errors
    /// `ReadOnly`; device errors.
    pub(crate) fn set_space_rules(&self, rules: SpaceRules) -> Result<()> {
        self.check_writable()?;
        self.meta.set_space_rules(rules)?;
        self.past.rule_epoch.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Fails on a read-only or closed volume, and after a write error.
    pub(crate) fn check_writable(&self) -> Result<()> {
        Ok(self.meta.check_writable()?)
    }

    /// The number at which what is made now is born.
    pub(crate) fn number(&self) -> Number {
        self.meta.number()
    }

    /// The group whose zones and blocks are nearest to an inode.
    pub(crate) fn near(&self, no: InodeNo) -> GroupNo {
        let zone = no.addr().zone();
        let group = if zone.is_primary() { GroupNo(zone.0 / 2) } else { self.meta.zone_group(zone) };
        debug_assert!(u64::from(group.0) * GROUP_BLOCKS < self.meta.geometry().blocks);
        group
    }

    /// Reserves metadata blocks for an Op, making zones if need be; keeps off what deletes and delayed data need.
    pub(crate) fn reserve(&self, near: GroupNo, blocks: u32) -> Result<Reserved> {
        self.alloc.reserve(&self.meta, near, blocks, false)
    }

    /// As [`Store::reserve`], for what must go on when the volume is full: flushing, truncating, deleting.
    pub(crate) fn reserve_freely(&self, near: GroupNo, blocks: u32) -> Result<Reserved> {
        self.alloc.reserve(&self.meta, near, blocks, true)
    }

    /// Reserves a free inode, making an inode block if need be.
    pub(crate) fn reserve_inode(&self, near: GroupNo) -> Result<ReservedInode> {
        loop {
            if let Some(inode) = self.meta.reserve_inode(near)? {
                return Ok(inode);
            }
            let reserved = self.reserve(near, 1)?;
            self.meta.begin(reserved).add_inode_block();
        }
    }

    /// The inode's cell.
    pub(crate) fn cell(&self, no: InodeNo) -> Result<Arc<InodeCell>> {
        self.inodes.get(self, no)
    }

    /// A cell's times have aged in memory; they are written some time. Called once per cell until then.
    pub(crate) fn note_aged(&self, cell: &Arc<InodeCell>) {
        self.aged.lock().push(cell.clone());
    }

    /// Writes the inodes whose times have aged.
    pub(crate) fn flush_aged(&self) -> Result<()> {
        let aged = std::mem::take(&mut *self.aged.lock());
        for cell in aged {
            self.store_if_dirty(&cell)?;
        }
        Ok(())
    }

    /// Writes the inode if times or size differ from its block.
    pub(crate) fn store_if_dirty(&self, cell: &InodeCell) -> Result<()> {
        let reserved = self.meta.reserve(GroupNo(0), 0)?;
        let mut state = cell.state.write();
        if state.dirty && !state.gone {
            let mut op = self.meta.begin(reserved);
            crate::inode::store_inode(&mut op, cell, &state);
            state.dirty = false;
        }
        Ok(())
    }

    /// Everything done before is on the medium when this returns.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        file::flush_all(self)?;
        self.flush_aged()?;
        crate::orphan::free_set_aside(self)?;
        Ok(self.meta.sync()?)
    }

    /// Frees an inode without names that nobody uses any more. Errors are left to the next mount, which finds the
    /// inode among the orphans.
    pub(crate) fn let_go(self: &Arc<Self>, cell: &Arc<InodeCell>) {
        if cell.unlinked.load(Ordering::Acquire) && !self.read_only && !self.inodes.in_use(cell) {
            if let Err(e) = crate::orphan::let_go(self, cell) {
                tracing::warn!("inode {} and others are freed at the next mount: {e}", cell.no);
            }
        }
    }

    /// Frees what is set aside, so that the counts of inodes and blocks are those that users expect. Nobody waits for its
    /// success: what cannot be freed now is at the next mount.
    pub(crate) fn settle_set_aside(self: &Arc<Self>) {
        if self.read_only {
            return;
        }
        if let Err(e) = crate::orphan::free_set_aside(self) {
            tracing::warn!("some inodes are freed at the next mount: {e}");
        }
    }

    /// Space, such that what is promised can be written.
    pub(crate) fn statfs(self: &Arc<Self>, behalf: Behalf) -> Statfs {
        self.settle_set_aside();
        let free = self.alloc.free_blocks();
        let can_go = match self.read_only {
            true => Ok(Most::default()),
            false => self.estimates.quick(self, behalf),
        };
        let can_go = can_go.unwrap_or_else(|error| {
            tracing::warn!("what history takes that could be given up is not known: {error}");
            Most::default()
        });
        let available = self.alloc.available(&self.meta, can_go.data);
        let used = self.meta.totals.inodes.get();
        let history = self.past.space();
        // A zone of 4 MiB holds 510 blocks of 16 inodes.
        let possible = available / 1024 * 510 * 16 + self.meta.free_index_estimate() * 16;
        Statfs {
            block_size: BLOCK_SIZE as u32,
            blocks: self.meta.geometry().blocks,
            blocks_free: free,
            blocks_available: available.min(free.saturating_add(can_go.data)),
            inodes: used + possible,
            inodes_free: possible,
            name_max: NAME_MAX as u32,
            history_data_blocks: history.data,
            history_metadata_blocks: history.nodes,
            history_index_blocks: history.trees,
        }
    }

    /// Writes everything, frees what has no name, marks the volume clean. Later calls do nothing.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        *self.tick.0.lock() = true;
        self.tick.1.notify_all();
        for (thread, what) in [(&self.ticker, "housekeeping"), (&self.forgetter, "forgetting")] {
            let thread = thread.lock().take();
            if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
                if thread.join().is_err() {
                    tracing::error!("the {what} thread panicked");
                }
            }
        }
        if self.read_only {
            return Ok(());
        }
        self.files.stop();
        // What can be written is, also if some file could not be freed or written.
        let mut freed = crate::orphan::free_set_aside(self);
        for cell in self.inodes.select(|c| c.unlinked.load(Ordering::Acquire)) {
            freed = freed.and(crate::orphan::reclaim(self, &cell));
        }
        let flushed = file::flush_all(self)
            .and_then(|()| self.flush_aged())
            .and_then(|()| self.alloc.give_back_zones(&self.meta));
        let closed = self.meta.close();
        freed.and(flushed)?;
        Ok(closed?)
    }

    /// A fresh incarnation.
    pub(crate) fn next_incarnation(&self) -> Incarnation {
        self.meta.next_incarnation()
    }
}
