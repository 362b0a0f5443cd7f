//! Longer help texts.

/// The options of `mount`.
pub const MOUNT_OPTIONS: &str = "\
OPTIONS, separated by commas:
  ro                 change nothing on the volume
  allow_other        let other users in; for root, or with user_allow_other in /etc/fuse.conf
  commit=SECONDS     the longest time until a change is on the medium (5)
  engine=NAME        snapshot, journal or none (docs/ENGINES.md); default: the volume's own
  durability=async|group|sync
                     with engine=journal: when calls that change names or attributes return: at once;
                     or when that is durable, by a log record shared with others (group) or of
                     its own (sync)
  journal=PATH       where the log is, if not where the volume says; internal: in the volume, and nowhere
                     else; none: leave out what is only in the log (with ro)
  cache=SIZE         memory for metadata (192M)
  data_cache=SIZE    memory for file data (an eighth of the machine's, at most 1G)
  log=FILE           where the daemon logs; default: the system's log
  discard            give blocks that have become free back to the device, in runs of 64 KiB and more:
                     image files get smaller, solid-state disks have less to keep
  noatime            do not record when files were read (default: relatime)
  keep_history       when space runs out, refuse; default: give up the oldest history, as far as
                     `yore history` allows
  nodefrag           leave files that history has scattered as they lie (yore defrag lays them
                     together), and metadata; default: lay both together when nobody works
  others_give_up_history
                     do that for requests of any user; default: only for root and who mounted it,
                     and for others what is theirs
  closes             be told when files are closed, for policies with version=close that are set
                     later: exact at once, but slower for all; a volume that has one is mounted so
  dev, suid          honour device files and set-id bits; root only
  snapdir=NAME       a hidden directory in the root that holds all snapshots of it, for
                     Samba and others
  user_snapshots=N, user_holds=N, user_policies=N
                     how many each user may have who is neither root nor mounts the volume
                     (10000, 1000, 1000)
  past=as-was|owner  who may read what was: who might then (as-was), or only its owner of then
  expunge_others     let owners expunge their files from snapshots that others took (yore expunge);
                     root and who mounts may always
  noexec             run no programs from the volume
  auto_unmount       unmount when the daemon dies
  remount,ro|rw      change a mount that is there; what is not named stays. dev, suid and noexec can be
                     changed, too; any other change is refused, and rw if it was mounted with ro
Options of fstab (defaults, noauto, user, nofail, _netdev, x-…) are accepted and mean what they mean
to mount(8).

Without dev and suid, neither is honoured. That mount(8) finds mount.fuse.yore (`make install`) is best;
of what libfuse's mount.fuse adds, dev and suid are taken back.

In fstab:  /srv/volume.yore  /srv/data  fuse.yore  defaults,allow_other  0  0";

/// The addresses of `inspect`.
pub const INSPECT_ADDRESSES: &str = "\
ADDR is one of:
  super              both superblocks (the default)
  zones              the zone table: every zone that exists
  zone N | root N    the header of a zone or of a root zone
  bitmaps            how full every group is
  bitmap G           the bitmap of group G, as runs of used blocks
  inode N            an inode, its content, and for the root of a tree its node
  ZONE:INDEX         the metadata block with that address (rootN:INDEX for the zone table)
  block B            the block with that number, whatever it is";

/// The exit codes.
pub const EXIT_CODES: &str = "\
0    done
1    `check`, `scrub` or `log --verify` found something wrong; `diff --exit-code` or `status --exit-code` found differences
2    the command line makes no sense, or a time in it cannot be read; nothing was done
3    the operation failed or was refused; the message says why and what to do. `cp`, `put` and `get` name what they could
     not copy, and have copied the rest
4    the volume, or the log of `log-service`, is damaged: what was read is not what was written; run `yore check`. `cp` and
     `get` have copied what is not damaged
5    a mount ended badly (`umount`, `mount --foreground`): not everything written may be on the medium
6    a check or a scrub was broken off before its end
101  a bug in yore: please report the message
141  whoever read the output (a pipe) stopped reading

\
With --json a failure is one line of JSON on standard error, an object with the keys error (the message), hint (what to do,
or null) and status (the exit code); each warning before it is an object with the key warning.";
