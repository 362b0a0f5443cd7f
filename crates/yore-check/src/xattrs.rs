//! Extended attributes: keys, names, complete chunks, and the flags that the inode keeps of them.

use crate::chain::SeenXattrs;
use crate::checker::Checker;
use crate::follow::Followed;
use crate::key::KEY_WIDTH;
use crate::state::State;
use crate::tree::Tree;
use crate::walk::Walk;
use crate::{CheckError, Finding, Problem, Recount};
use yore_format::{
    xattr_key, BlockKind, InodeFlags, InodeNo, MetaAddr, WriteFeatures, XattrCell, XattrNamespace,
    XATTR_CHUNK_BYTES,
};

/// The part of a key that is the hash.
const HASH: u64 = !0xff_ffff;
/// The part of a key that is the chunk's number.
const CHUNK: u64 = 0xffff;
/// Attributes that one hash can have.
const COLLISIONS: usize = 256;

/// The attributes of one inode so far, in ascending order of keys.
struct Attributes {
    number: InodeNo,
    flags: InodeFlags,
    /// The hash that the last names share, and the names. Equal names share their hash.
    hash: u64,
    names: Vec<(XattrNamespace, Vec<u8>)>,
    /// The key of the next chunk of the attribute under way, and the bytes still to come.
    next: Option<(u64, usize)>,
    /// Whether something may be missing before the next cell.
    is_stopped: bool,
    /// Whether these are attributes of today.
    is_counted: bool,
}

impl Attributes {
    /// Leaves may have been passed over: what comes next may go on with an attribute that is not known.
    fn stop(&mut self) {
        self.names.clear();
        (self.next, self.is_stopped) = (None, true);
    }
}

impl Checker<'_> {
    /// Checks an inode's attributes.
    pub(crate) fn xattrs(&mut self, state: &mut State<'_>) -> Result<(), CheckError> {
        let (number, inode) = (state.number, state.inode);
        let chosen = inode.flags & InodeFlags::CHOSEN;
        if !chosen.is_empty() {
            self.needs(WriteFeatures::INODE_FLAGS, "an inode's flags", state.addr, number);
            if !inode.is_regular() && !inode.is_directory() {
                let finding = Finding::new(Problem::ChosenFlags, 0u32, chosen.bits());
                self.add(finding.at(state.addr).of(number));
            }
        }
        // Of what has no name the attributes are freed from the end, if need be over several generations: its
        // flags may say more than is left, and the last one may lack its end.
        let is_orphan = inode.links == 0;
        let root = inode.xattr_root;
        let found = match root.is_none() {
            true => SeenXattrs { flags: Some(InodeFlags::empty()), nodes: 0, complete: true },
            false => self.xattr_tree(state, is_orphan)?,
        };
        state.complete &= found.complete;
        state.blocks += found.nodes;
        let Some(flags) = found.flags else { return Ok(()) };
        let has = inode.flags - InodeFlags::CHOSEN;
        let may_be = is_orphan && has.contains(flags);
        if flags != has && !may_be {
            let (expected, found) = (flags.bits(), has.bits());
            let finding = Finding::new(Problem::XattrFlags, expected, found);
            let recount = Recount::Flags { inode: number, incarnation: inode.incarnation };
            self.add(finding.at(state.addr).of(number).recounted(recount));
        }
        Ok(())
    }

    /// Checks the tree of an inode's attributes, but for a version that names the same one as a newer state:
    /// then what was found in it is known.
    fn xattr_tree(&mut self, state: &mut State<'_>, is_orphan: bool) -> Result<SeenXattrs, CheckError> {
        let (number, root) = (state.number, state.inode.xattr_root);
        let tree = Tree {
            kind: BlockKind::Xattrs,
            owner: number,
            incarnation: state.inode.incarnation,
            root,
            level: None,
            key_width: KEY_WIDTH,
        };
        if let Some(chain) = state.chain.as_deref_mut() {
            if let Some(seen) = chain.xattrs.get(&(root, is_orphan)).copied() {
                let known = matches!(self.follow(&tree, &tree.step(), Some(chain))?, Followed::Known(_));
                let flags = seen.flags.filter(|_| known);
                return Ok(SeenXattrs { flags, complete: seen.complete && known, ..seen });
            }
        }
        let is_counted = !state.is_past();
        let mut attributes = Attributes {
            number,
            flags: InodeFlags::empty(),
            hash: 0,
            names: Vec::new(),
            next: None,
            is_stopped: false,
            is_counted,
        };
        let mut readable = true;
        let mut walk = Walk::of_state(tree, state.chain.as_deref());
        while let Some(leaf) = walk.next_leaf_of(self, state.chain.as_deref_mut())? {
            if walk.is_of_new {
                attributes.stop();
            }
            for i in 0..leaf.count() {
                let (key, value) = leaf.cell(i);
                readable &= self.xattr(&mut attributes, leaf.addr, key, value);
            }
        }
        if !is_orphan && !walk.is_of_new {
            self.end_of_attribute(&mut attributes, root);
        }
        let flags = (readable && walk.complete).then_some(attributes.flags);
        let seen = SeenXattrs { flags, nodes: walk.nodes, complete: walk.complete };
        if let Some(chain) = state.chain.as_deref_mut() {
            chain.xattrs.insert((root, is_orphan), seen);
        }
        Ok(seen)
    }

    /// One cell. False if it cannot be decoded.
    fn xattr(&mut self, attributes: &mut Attributes, addr: MetaAddr, key: u64, value: &[u8]) -> bool {
        match XattrCell::decode(value) {
            Ok(XattrCell::First { namespace, name, value_len, chunk }) => {
                self.end_of_attribute(attributes, addr);
                self.first_chunk(attributes, addr, key, (namespace, name));
                let left = (value_len as usize).saturating_sub(chunk.len());
                attributes.next = Some((key.wrapping_add(1), left));
                attributes.is_stopped = false;
            }
            Ok(XattrCell::Rest(bytes)) => match attributes.next {
                Some((next, left))
                    if next == key && bytes.len() == left.min(XATTR_CHUNK_BYTES) && left > 0 =>
                {
                    attributes.next = Some((key.wrapping_add(1), left - bytes.len()));
                }
                None if attributes.is_stopped => {}
                next => {
                    let expected = match next {
                        Some((next, left)) if left > 0 => {
                            format!("{} bytes in chunk {}", left.min(XATTR_CHUNK_BYTES), next & CHUNK)
                        }
                        _ => "an attribute's first chunk".to_string(),
                    };
                    let found = format!("{} bytes in chunk {} under {key:#x}", bytes.len(), key & CHUNK);
                    let finding = Finding::new(Problem::XattrChunk, expected, found);
                    self.add(finding.at(addr).of(attributes.number));
                    // Reported once; the attribute's end is not to be missed again.
                    attributes.next = None;
                }
            },
            Err(c) => {
                let c = c.at(addr).of(attributes.number);
                self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                attributes.next = None;
                return false;
            }
        }
        true
    }

    fn first_chunk(
        &mut self,
        attributes: &mut Attributes,
        addr: MetaAddr,
        key: u64,
        (namespace, name): (XattrNamespace, &[u8]),
    ) {
        self.counts.xattrs += u64::from(attributes.is_counted);
        let number = attributes.number;
        let shown = format!("{}{}", namespace.prefix(), String::from_utf8_lossy(name));
        let hash = xattr_key(&self.sb.hash_seed, namespace, name);
        if key & HASH != hash || key & CHUNK != 0 {
            let expected = format!("{hash:#x} plus up to 255 times 65536 for {shown:?}");
            let finding = Finding::new(Problem::XattrKey, expected, format!("{key:#x}"));
            self.add(finding.at(addr).of(number));
        }
        if hash != attributes.hash {
            attributes.names.clear();
            attributes.hash = hash;
        }
        let mut wrong = None;
        if attributes.names.iter().any(|(ns, n)| *ns == namespace && n == name) {
            wrong = Some("the second of this name");
        } else if attributes.names.len() < COLLISIONS {
            attributes.names.push((namespace, name.to_vec()));
        }
        match (namespace, name) {
            (XattrNamespace::System, b"posix_acl_access") => attributes.flags |= InodeFlags::ACCESS_ACL,
            (XattrNamespace::System, b"posix_acl_default") => attributes.flags |= InodeFlags::DEFAULT_ACL,
            (XattrNamespace::System, _) => wrong = Some("no name that this namespace has"),
            (XattrNamespace::Security, b"capability") => attributes.flags |= InodeFlags::CAPABILITY,
            _ if name.contains(&0) => wrong = Some("a name with a NUL"),
            _ => {}
        }
        if let Some(wrong) = wrong {
            let finding =
                Finding::new(Problem::XattrName, "a possible name, once", format!("{shown:?}: {wrong}"));
            self.add(finding.at(addr).of(number));
        }
    }

    /// The attribute under way must have all its bytes.
    fn end_of_attribute(&mut self, attributes: &mut Attributes, addr: MetaAddr) {
        if let Some((next, left @ 1..)) = attributes.next.take() {
            let expected = format!("{left} more bytes from chunk {} on", next & CHUNK);
            let finding = Finding::new(Problem::XattrChunk, expected, "the end of the attribute");
            self.add(finding.at(addr).of(attributes.number));
        }
    }
}
