//! A view and a node: which volume they belong to, and which time.

use crate::history::read::at_time::PastInode;
use crate::history::reclaim::unended;
use crate::history::record::Seeing;
use crate::ops::InUse;
use crate::store::Store;
use crate::{Attr, Behalf, Error, InodeNo, Result};
use std::borrow::Cow;
use std::sync::Arc;
use yore_format::EventNo;

/// The tree of an open volume, for servers and for programs that think in inodes; see [`crate::Volume`] for
/// paths. It is the present, which can be changed. [`View::as_of`] gives a tree that an event has seen, which
/// cannot be changed: every call that would change it fails with [`Error::ReadOnly`].
///
/// Cheap to clone. All methods take `&self` and may be called from any number of threads. Inode numbers are
/// stable for the life of a file; an operation on a number whose inode is gone fails with [`Error::Stale`].
/// When the last clone is dropped the volume is closed as by [`View::close`].
///
/// Nothing here checks permissions: a view has the rights of the process that opened the volume, and a server
/// checks those of its clients (a FUSE mount leaves that to the kernel).
#[derive(Clone)]
pub struct View {
    inner: Arc<Inner>,
    /// The event as of which this shows the tree; `None`: the present.
    pub(super) at: Option<EventNo>,
    /// It belongs to the caller that has closed the gate, and passes the gate.
    pub(super) inside: bool,
    /// On whose behalf its requests are made.
    pub(super) behalf: Behalf,
}

struct Inner {
    store: Arc<Store>,
    /// Closes the volume. A layer above knows how.
    close: fn(&Arc<Store>) -> Result<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(e) = (self.close)(&self.store) {
            tracing::error!("closing the volume: {e}");
        }
    }
}

/// An inode in use. While a `Node` lives its inode stays, also without a name; dropping the last `Node` of an
/// unlinked inode frees the inode. An inode of the past stays in any case, until its event is forgotten.
pub struct Node(pub(super) Known);

pub(super) enum Known {
    Live(InUse),
    Past { view: View, inode: PastInode },
}

impl Node {
    /// Its number.
    pub fn inode(&self) -> InodeNo {
        self.attr().inode
    }

    /// Its attributes when the node was obtained.
    pub fn attr(&self) -> &Attr {
        match &self.0 {
            Known::Live(live) => &live.attr,
            Known::Past { inode, .. } => &inode.attr,
        }
    }

    /// The event as of which this shows the inode; `None`: the present.
    pub fn event(&self) -> Option<EventNo> {
        match &self.0 {
            Known::Live(_) => None,
            Known::Past { view, .. } => view.at,
        }
    }

    /// Keeps the inode beyond this value's life, until [`View::forget_lookups`] has been called as often:
    /// this is a FUSE lookup count. An inode of the past needs none.
    pub fn into_counted(self) -> Attr {
        match self.0 {
            Known::Live(live) => {
                live.store.inodes.count_lookup(live.cell.no);
                live.attr
            }
            Known::Past { inode, .. } => inode.attr,
        }
    }

    /// The inode of the present.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for an inode of the past.
    pub(crate) fn live(&self) -> Result<&InUse> {
        match &self.0 {
            Known::Live(live) => {
                live.store.idle.note();
                unended::settle(&live.store)?;
                Ok(live)
            }
            Known::Past { .. } => Err(Error::ReadOnly),
        }
    }
}

impl From<InUse> for Node {
    fn from(live: InUse) -> Node {
        Node(Known::Live(live))
    }
}

impl View {
    /// The present of an open volume, which `close` closes when its last view goes.
    pub(crate) fn new(store: Arc<Store>, close: fn(&Arc<Store>) -> Result<()>) -> View {
        View { inner: Arc::new(Inner { store, close }), at: None, inside: false, behalf: Behalf::Owner }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        self.inner.store.idle.note();
        &self.inner.store
    }

    /// Whether both are of one open volume.
    pub fn is_of_same_volume(&self, other: &View) -> bool {
        Arc::ptr_eq(self.store(), other.store())
    }

    /// The store, for a caller that changes the present.
    pub(crate) fn live(&self) -> Result<&Arc<Store>> {
        match self.at {
            None => {
                unended::settle(self.store())?;
                Ok(self.store())
            }
            Some(_) => Err(Error::ReadOnly),
        }
    }

    pub(crate) fn past_node(&self, inode: PastInode) -> Node {
        Node(Known::Past { view: self.clone(), inode })
    }

    /// The event as of which this shows the tree; `None`: the present.
    pub fn event(&self) -> Option<EventNo> {
        self.at
    }

    /// The event as of which this shows the tree. As long as the caller holds the result, the event is not
    /// forgotten; and for some time afterwards it is not given up.
    pub(super) fn seen(&self) -> Result<Option<Seeing<'_>>> {
        let Some(event) = self.at else { return Ok(None) };
        let seeing = self.store().past.see(event)?;
        self.store().past.note_reading(event);
        Ok(Some(seeing))
    }

    /// The same view for requests on behalf of somebody else: this decides what history a full volume may
    /// give up.
    pub fn on_behalf_of(&self, behalf: Behalf) -> View {
        View { behalf, ..self.clone() }
    }

    /// On whose behalf requests with this view are made.
    pub fn behalf(&self) -> Behalf {
        self.behalf
    }

    /// The same volume's present.
    pub fn present(&self) -> View {
        View { at: None, inside: false, ..self.clone() }
    }

    /// The same volume's present, for the caller that has closed the gate.
    pub(crate) fn inside(&self) -> View {
        View { inside: true, ..self.present() }
    }

    /// The tree as of an event. Only what lies below the event's root directory is as it was then. Once the
    /// event is forgotten, calls on this view fail with [`Error::Stale`].
    pub fn as_of(&self, event: EventNo) -> View {
        View { at: Some(event), inside: false, ..self.clone() }
    }

    /// The view in which a node was found: this one, or one of the same volume as of an event.
    pub fn of(&self, node: &Node) -> Cow<'_, View> {
        match node.event() {
            same if same == self.at => Cow::Borrowed(self),
            at => Cow::Owned(View { at, inside: false, ..self.clone() }),
        }
    }

    /// Whether the volume was opened read-only.
    pub fn read_only(&self) -> bool {
        self.store().read_only || self.at.is_some()
    }

    /// The root directory's number.
    pub fn root(&self) -> InodeNo {
        self.store().meta.found().root_directory
    }
}
