//! A view and a node: what they are of.

use crate::history::read::at_time::PastInode;
use crate::history::record::Seeing;
use crate::ops::InUse;
use crate::store::Store;
use crate::{Attr, Behalf, Error, InodeNo, Result};
use std::borrow::Cow;
use std::sync::Arc;
use yore_format::EventNo;

/// The tree of an open volume, for servers and for programs that think in inodes; see [`crate::Volume`] for
/// paths. It is the present, which can be changed, or, from [`View::as_of`], what an event has seen, which
/// cannot: whatever would change it fails with [`Error::ReadOnly`].
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
    /// The event as of which the tree is seen; `None`: the present.
    pub(super) at: Option<EventNo>,
    /// It belongs to the caller who has closed the gate, and passes it.
    pub(super) inside: bool,
    /// Whose requests are made with it.
    pub(super) behalf: Behalf,
}

struct Inner {
    store: Arc<Store>,
    /// Closes the volume. What that takes stands above.
    close: fn(&Arc<Store>) -> Result<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(e) = (self.close)(&self.store) {
            tracing::error!("closing the volume: {e}");
        }
    }
}

/// An inode in use. While a `Node` lives its inode stays, also without a name; dropping the last one of an
/// unlinked inode frees it. One of the past is there in any case, until its event is forgotten.
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

    /// The event as of which it is seen; `None`: the present.
    pub fn event(&self) -> Option<EventNo> {
        match &self.0 {
            Known::Live(_) => None,
            Known::Past { view, .. } => view.at,
        }
    }

    /// Keeps the inode beyond this value's life, until as many [`View::release`]: what a FUSE lookup count
    /// is. What was needs no such thing.
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
    /// [`Error::ReadOnly`] for one of the past.
    pub(crate) fn live(&self) -> Result<&InUse> {
        match &self.0 {
            Known::Live(live) => Ok(live),
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
    /// The present of an open volume, which `close` closes when the last view of it goes.
    pub(crate) fn new(store: Arc<Store>, close: fn(&Arc<Store>) -> Result<()>) -> View {
        View { inner: Arc::new(Inner { store, close }), at: None, inside: false, behalf: Behalf::Owner }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.inner.store
    }

    /// The store, to change the present.
    pub(crate) fn live(&self) -> Result<&Arc<Store>> {
        match self.at {
            None => Ok(self.store()),
            Some(_) => Err(Error::ReadOnly),
        }
    }

    pub(crate) fn past_node(&self, inode: PastInode) -> Node {
        Node(Known::Past { view: self.clone(), inode })
    }

    /// The event as of which the tree is seen; `None`: the present.
    pub fn event(&self) -> Option<EventNo> {
        self.at
    }

    /// The event as of which the tree is seen, kept from being forgotten as long as this is held, and from
    /// being given up for some time.
    pub(super) fn seen(&self) -> Result<Option<Seeing<'_>>> {
        let Some(event) = self.at else { return Ok(None) };
        let seeing = self.store().past.see(event)?;
        self.store().past.note_reading(event);
        Ok(Some(seeing))
    }

    /// The same view for requests of somebody else: what history a full volume may give up for them.
    pub fn on_behalf_of(&self, behalf: Behalf) -> View {
        View { behalf, ..self.clone() }
    }

    /// Whose requests are made with this view.
    pub fn behalf(&self) -> Behalf {
        self.behalf
    }

    /// The same volume's present.
    pub fn present(&self) -> View {
        View { at: None, inside: false, ..self.clone() }
    }

    /// The same volume's present, for the caller who has closed the gate.
    pub(crate) fn inside(&self) -> View {
        View { inside: true, ..self.present() }
    }

    /// The tree as of an event. Only below the directory that the event is of everything is as it was then.
    /// Once the event is forgotten, calls on it fail with [`Error::Stale`].
    pub fn as_of(&self, event: EventNo) -> View {
        View { at: Some(event), inside: false, ..self.clone() }
    }

    /// The view in which a node was found, this one or one of the same volume as of an event.
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
